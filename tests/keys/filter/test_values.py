"""Values of a message as a filter sees them: scalars, numbers, flat arrays."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule
from tidegate.keys.filter.values import OBJECT, elements_of, opened, scalar_of

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
        ("/e IS NULL", True),
        ("'' IS NULL", True),
        ("TRIM(' ') IS NULL", True),
    ],
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


@rule("filter-5", "filter-6", "filter-7", "filter-9", "filter-10", "filter-14")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule


@rule("filter-8", "filter-4")
@pytest.mark.parametrize(
    ("items", "flat", "passed"),
    [
        ([1, 2], [1, 2], 2),
        ([[1], [2, 3]], [1, 2, 3], 5),
        ([1, [2, [3]], 4], [1, 2, 3, 4], 6),
        ([[[[]]]], [], 3),
        ([[1, [2]], [[3], 4]], [1, 2, 3, 4], 8),
        ([], [], 0),
    ],
)
def test_arrays_are_opened_in_order_and_everything_counts(
    items: list[Any], flat: list[Any], passed: int
) -> None:
    assert opened(items, passed) == flat
    assert opened(items, passed - 1) is None


@rule("filter-5", "filter-7", "filter-6")
@pytest.mark.parametrize(
    "items",
    [
        ["a", "", "\u00e9"],
        ["a", "\u00e9\x00", ""],
        [1, 2**64, -(2**63) - 1, 10**400],
        [{}, None, True, 2.5, "\u00e9", "", 2**64],
    ],
)
def test_all_elements_are_what_each_would_be_alone(items: list[Any]) -> None:
    found, alone = elements_of(items), [scalar_of(item) for item in items]
    assert [(type(each), each) for each in found] == [(type(each), each) for each in alone]


@rule("filter-7")
def test_an_object_is_there_without_a_value() -> None:
    assert elements_of([{"a": 1}]) == [OBJECT]
