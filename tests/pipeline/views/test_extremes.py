"""Of equal values the one that was published first is shown, whoever has it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.keys.reducers import Reducer
from tidegate.pipeline.views.members import Members
from tidegate.pipeline.views.partials import Extreme


def part(reducer: Reducer, told: Sequence[tuple[str, int, str]]) -> list[Any]:
    """The part of one task, from a file, a position and a text of each record."""
    files, positions, texts = zip(*told, strict=True)
    columns = {
        "group": ["g"] * len(told),
        "batch": [0] * len(told),
        "file": files,
        "block": [0] * len(told),
        "position": positions,
        "cell_0": pa.array([text.encode() for text in texts], pa.binary()),
    }
    members = Members.of(pa.table(columns))
    [found] = Extreme(reducer).of(members.cells(0), members)
    return list(found)


@rule("merge-7", "view-5")
@pytest.mark.parametrize(
    ("reducer", "tasks", "shown"),
    [
        (Reducer.MIN, [[("f", 2, "1.0"), ("f", 3, "1")], [("f", 1, "1.00")]], b"1.00"),
        (Reducer.MIN, [[("g", 1, "1.0")], [("f", 9, "1e0")]], b"1e0"),
        (Reducer.MAX, [[("f", 1, "2"), ("f", 2, "2.0")], [("f", 3, "1")]], b"2"),
        (Reducer.MAX, [[("f", 1, '"z"')], [("f", 2, "-5")]], b"-5"),
        (Reducer.MAX, [[("f", 1, '"a"')], [("f", 2, '"b"'), ("f", 3, "true")]], b'"b"'),
        (Reducer.MIN, [[("f", 1, "true")]], b"null"),
    ],
)
def test_the_first_of_equal_values_is_shown(
    reducer: Reducer, tasks: list[list[tuple[str, int, str]]], shown: bytes
) -> None:
    parts = [part(reducer, told) for told in tasks]
    assert {Extreme(reducer).shown(order) for order in permutations(parts)} == {shown}
