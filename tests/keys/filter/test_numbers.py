"""Numbers, texts and arithmetic."""

from __future__ import annotations

import math

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-5": [
        ("'+05' = 5", True),
        ("' 5' = 5", False),
        ("'1e1' = 10", True),
        ("'0x1' + 0", math.nan),
        ("/t = 1", True),
        ("'5.' + 0", 5.0),
        ("'w' + 1", math.nan),
        ("TRUE + '2'", 3),
        ("NULL + 1", None),
    ],
    "Rule filter-6": [
        ("CONCAT(1, ' ', 2.0, ' ', 1e16, ' ', TRUE)", "1 2.0 1e+16 1"),
        ("CONCAT(1e308 * 10)", "Infinity"),
        ("CONCAT(NAN_VALUE())", "NaN"),
    ],
    "Rule filter-7": [("/e IS NULL", True), ("'' IS NULL", True), ("TRIM(' ') IS NULL", True)],
    "Rule filter-10": [
        ("NOT 'x'", True),
        ("NOT '2'", False),
        ("NOT NULL", None),
        ("NOT NAN_VALUE()", True),
    ],
    "Rule filter-14": [
        ("1 / 5", 0),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("-7.5 % 2", -1.5),
        ("1 / 0", None),
        ("1.0 % 0", None),
        ("9223372036854775807 * 3", 9223372036854775807.0 * 3),
        ("9223372036854775807 + 1", 2**63),
    ],
}


@rule("filter-5", "filter-6", "filter-7", "filter-10", "filter-14")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
