"""What a path finds in a message."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-8": [
        ("/o/p/q", 1),
        ("/o/p/q[1]", 2),
        ("/a/x", None),
        ("/b[0]", None),
        ("/l IS NULL", True),
        ("/ll IS NULL", True),
        ("/nn IS NULL", False),
        ("ARRAY_TO_STRING(/deep, ' ')", "4 5"),
    ],
    "Rule filter-9": [("/c + 1", 2), ("/c", 1), ("/nn", None), ("/c AND TRUE", True)],
}


@rule("filter-8", "filter-9")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
