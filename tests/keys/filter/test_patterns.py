"""Regular expressions are RE2's."""

from __future__ import annotations

import pytest

from keys.errors import FilterInvalid
from keys.filter.patterns import compiled


def test_patterns_search_characters() -> None:
    """Rule 99."""
    assert compiled("^.$").search("\u00e9")


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "x{1001}", "((x{99}){99}){99}"])
def test_what_is_not_linear_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(FilterInvalid) as refused:
        compiled(pattern, 5)
    assert refused.value.position == 5
