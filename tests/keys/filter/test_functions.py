"""Functions of arrays."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-15": [
        ("GREATEST(1, 'w', NULL, 2)", "w"),
        ("LEAST(2, '1')", "1"),
        ("LEAST(NULL)", None),
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


@rule("filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
