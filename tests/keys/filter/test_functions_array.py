"""Functions of arrays."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule 110": [("GREATEST(1, 'w', NULL, 2)", "w"), ("LEAST(2, '1')", "1"), ("LEAST(NULL)", None)],
    "Rule 113": [
        ("ARRAY_COUNT(/c)", 4),
        ("ARRAY_COUNT(/n)", 0),
        ("ARRAY_COUNT(/b)", 1),
        ("ARRAY_MAX(/c)", "w"),
        ("ARRAY_MIN(/deep)", 4),
        ("ARRAY_SUM(/deep)", 9),
        ("ARRAY_SUM(/nn)", None),
        ("ARRAY_TO_STRING(/c, '-', 'N')", "1-2-N-w"),
        ("ARRAY_TO_STRING(/c, '')", "12w"),
    ],
}


@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
