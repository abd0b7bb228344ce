"""Arrays are opened, and their elements made values, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.keys.filter.values import OBJECT, elements_of, opened, scalar_of


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
