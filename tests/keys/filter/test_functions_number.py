"""Functions of numbers."""

from __future__ import annotations

import math

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-15": [
        ("ABS(-9223372036854775808)", 2**63),
        ("SIGN(-2.5)", -1),
        ("CEILING(2.1)", 3),
        ("FLOOR(-2.1)", -3),
        ("ROUND(2.5)", 3),
        ("ROUND(-2.5)", -3),
        ("ROUND(2.675, 2)", 2.68),
        ("ROUND(1250, -2)", 1300),
        ("ROUND(1e300)", 1e300),
        ("SQRT(-1)", math.nan),
        ("LN(0)", -math.inf),
        ("EXP(1000)", math.inf),
        ("SINH(-1000)", -math.inf),
        ("POWER(0, -1)", math.inf),
        ("POWER(-10, 999)", -math.inf),
        ("COT(0)", math.inf),
        ("LOG2(8)", 3.0),
        ("SIN(1e308 * 10)", math.nan),
        ("WIDTH_BUCKET(5, 0, 10, 5)", 3),
        ("WIDTH_BUCKET(-1, 0, 10, 5)", 0),
        ("WIDTH_BUCKET(10, 0, 10, 5)", 6),
        ("WIDTH_BUCKET(1, 10, 0, 5)", 5),
        ("WIDTH_BUCKET(1, 1, 1, 5)", None),
        ("ROUND(GEO_DISTANCE(0, 0, 0, 1))", 111195),
        ("GEO_DISTANCE(0, 0, 0, 'w')", math.nan),
    ],
}


@rule("filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
