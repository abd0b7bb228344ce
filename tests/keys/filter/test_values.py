"""Arrays and objects as values."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-9": [
        ("/c = 2", True),
        ("/c > 5", True),
        ("5 < /c", True),
        ("/deep > 5", False),
        ("/c != NAN_VALUE()", True),
        ("/c != 1", True),
        ("/c NOT IN (1)", False),
        ("/nn = 1", None),
        ("/oo = 1", None),
        ("/c LIKE '^w$'", True),
        ("/c BEGINS WITH ('w')", True),
        ("/c ENDS WITH ('z')", False),
        ("/deep = /o/p/q", False),
        ("/deep > /o/p/q", True),
        ("/c NOT LIKE 'z'", True),
    ],
    "Rule filter-7": [
        ("/o IS NULL", False),
        ("/o = 1", None),
        ("ARRAY_COUNT(/oo)", 1),
        ("COALESCE(/o, 1)", 1),
    ],
}


@rule("filter-9", "filter-7")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
