"""Partials add up to the aggregate over all values, in whichever partials the records are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.jsontext import exact
from tidegate.keys.projection import Aggregate, Moments, Projection
from tidegate.keys.reducers import Reducer
from tidegate.pipeline.views.cells import CellReader, GroupRecords
from tidegate.pipeline.views.partials import Extreme, moments, partial_aggregate

TEXTS = ("1", "1.0", "-2.5", "1e300", "null", '""', '"x"', '"12"', '"a"', "true", "[3]", "{}")
values = st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(0, 2)), min_size=1, max_size=12)


@rule("view-4", "view-5", "view-9")
@pytest.mark.parametrize("aggregate", [*(f"{name}(/v) AS /x" for name in Aggregate), "/v AS /x"])
@examples(8)
@given(values, st.randoms(use_true_random=False))
def test_partials_in_any_order_are_the_whole(
    aggregate: str, found: list[tuple[str, int]], chance: object
) -> None:
    projection = Projection.parse(f"[{aggregate}]", 0, "[/g]", 0)
    [column] = projection.columns
    bodies = [f'{{"v":{text}}}'.encode() for text, _ in found]
    cells = CellReader(projection).columns(bodies)[-1]
    partials = []
    for task in {task for _, task in found}:
        here = [at for at, (_, mine) in enumerate(found) if mine == task]
        records = pa.table(
            {
                "group": ["g"] * len(here),
                "batch": here,
                "file": [""] * len(here),
                "block": [0] * len(here),
                "position": [0] * len(here),
                "cell_0": cells.take(pa.array(here)),
            }
        )
        grouped = GroupRecords.of(records)
        partials += partial_aggregate(column).of(grouped.cells(0), grouped)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(partials))
    chance.shuffle(stored)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert partial_aggregate(column).shown(stored) == column.result(bodies)


def part(reducer: Reducer, records: Sequence[tuple[str, int, str]]) -> list[Any]:
    """The part of one task, from a file, a position and a text of each record."""
    files, positions, texts = zip(*records, strict=True)
    columns = {
        "group": ["g"] * len(records),
        "batch": [0] * len(records),
        "file": files,
        "block": [0] * len(records),
        "position": positions,
        "cell_0": pa.array([text.encode() for text in texts], pa.binary()),
    }
    grouped = GroupRecords.of(pa.table(columns))
    [found] = Extreme(reducer).of(grouped.cells(0), grouped)
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
    partials = [part(reducer, records) for records in tasks]
    assert {Extreme(reducer).shown(order) for order in permutations(partials)} == {shown}


decimals = st.one_of(
    st.integers(-(2**63), 2**64).map(str),
    st.integers(-99, 99).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-9999, 9999, places=3).map(str),
)


def one_by_one(groups: list[list[str]], *, squared: bool) -> list[Moments]:
    numbers = [[exact(text.encode()) or 0 for text in group] for group in groups]
    return [Moments.of(found, squared=squared) for found in numbers]


@pytest.mark.parametrize("squared", [False, True])
@examples(30)
@given(st.lists(st.lists(decimals, min_size=1, max_size=5), min_size=1, max_size=4))
def test_columns_sum_exactly(squared: bool, groups: list[list[str]]) -> None:
    texts = pa.array([text.encode() for group in groups for text in group], pa.binary())
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    assert moments(texts, starts, squared=squared) == one_by_one(groups, squared=squared)


@pytest.mark.parametrize(
    "texts",
    [
        ["0.1"] * 10,
        ["123456789012345", "-0.5"],
        ["99999999999999.9", "0.1"],
        ["999999999999999"] * 9_300,
        ["4000000000"] * 3,
        ["1e+16", "-1e+16", "1"],
    ],
)
def test_what_a_column_cannot_hold_is_exact_too(texts: list[str]) -> None:
    column = pa.array([text.encode() for text in texts], pa.binary())
    for squared in (False, True):
        [found] = moments(column, np.array([0]), squared=squared)
        assert found == one_by_one([texts], squared=squared)[0]
        assert found.total == sum(map(Fraction, texts))
