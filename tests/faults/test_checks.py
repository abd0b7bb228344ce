"""What is wrong with a sink is found: nothing passes that was lost, doubled or put elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.kinds import held_faults
from tests.faults.setups import pipeline


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([0, 1, 2], []),
        ([0, 2], ["1 of 3 messages are lost, the first is 1"]),
        ([0, 1, 1, 2], ["1 messages came more than once, the first is 1"]),
        ([0, 2, 1], ["messages are out of order"]),
        ([], ["3 of 3 messages are lost, the first is 0"]),
    ],
)
def test_numbers_are_there_once_and_in_order(numbers: list[int], found: list[str]) -> None:
    assert list(pipeline.judge(numbers, 3)) == found


@pytest.mark.parametrize(
    ("sums", "found"),
    [
        ([1, 3], []),
        ([1], ["view: key a has 1 rows, not 2; row 1 is None, not {'k': 'a', 'sum': 3}"]),
        ([1, 1, 3], ["view: key a has 3 rows, not 2; row 1 is {'k': 'a', 'sum': 1}, not {…3}"]),
        ([1, 4], ["view: key a has 2 rows, not 2; row 1 is {'k': 'a', 'sum': 4}, not {…3}"]),
    ],
)
def test_rows_of_a_key_are_what_they_have_to_be(sums: list[int], found: list[str]) -> None:
    def rows(sums: list[int]) -> dict[str, list[dict[str, Any]]]:
        return {"a": [{"k": "a", "sum": each} for each in sums]}

    expected = [text.replace("{…3}", "{'k': 'a', 'sum': 3}") for text in found]
    assert list(held_faults.judge("view", rows(sums), rows([1, 3]))) == expected


def test_a_key_that_nobody_published_is_found() -> None:
    assert list(held_faults.judge("view", {"a": [{"k": "a"}]}, {})) == [
        "view: key a has 1 rows, not 0; row 0 is {'k': 'a'}, not None"
    ]
