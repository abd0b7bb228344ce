"""What a path finds in a message."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule 88": [("/o/p/q", 1), ("/o/p/q[1]", 2), ("/a/x", None), ("/b[0]", None)],
    "Rule 89": [
        ("/l IS NULL", True),
        ("/ll IS NULL", True),
        ("/nn IS NULL", False),
        ("ARRAY_TO_STRING(/deep, ' ')", "4 5"),
    ],
    "Rule 91": [("/c + 1", 2), ("/c", 1), ("/nn", None), ("/c AND TRUE", True)],
}


@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
