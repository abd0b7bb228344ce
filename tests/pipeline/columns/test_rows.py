"""The rows that sources give and sinks take, and the blocks that travel between tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.pipeline.columns import rows
from tidegate.pipeline.columns.rows import Block, Messages, compact, packed, shard_of, unpacked


@pytest.mark.parametrize("columns", [rows.PUBLISHED, rows.SENT])
def test_columns_are_spelled_for_spark_and_for_arrow(columns: str) -> None:
    schema = rows.arrow_schema(columns)
    spelled = {pa.string(): "string", pa.int64(): "long", pa.binary(): "binary"}
    assert columns == ", ".join(f"{field.name} {spelled[field.type]}" for field in schema)


@rule("pipeline-5")
def test_nothing_says_which_messages_are_not_to_be_conflated() -> None:
    assert rows.arrow_schema(rows.PUBLISHED).names == [
        "file",
        "block",
        "position",
        "time_ms",
        "key",
        "body",
        "removed",
        "refused",
    ]


def test_a_block_comes_back_as_it_was_also_without_a_message() -> None:
    full = Block(
        3, "a\0", 7, 99, ["x", "é"], np.array([1, 0, 1]), np.array([5, 6, 7]),
        pa.array([b"1", None, b"3"], pa.binary()),
    )  # fmt: skip
    none = np.zeros(0, np.int64)
    empty = Block(4, "b", 0, 5, [], none, none, pa.array([], pa.int64()))
    first, second = unpacked(iter([packed([full, empty])]))
    assert (first.stream, first.part, first.row, first.clock_ns) == (3, "a\0", 7, 99)
    assert first.keys == ["x", "é"]
    assert first.codes.tolist() == [1, 0, 1]
    assert first.times_ns.tolist() == [5, 6, 7]
    assert first.values.to_pylist() == [b"1", None, b"3"]
    assert (second.keys, len(second.codes), len(second.values)) == ([], 0, 0)


def test_compact_numbers_what_is_there() -> None:
    present, places = compact(np.array([4, 1, 4]), 6)
    assert present.tolist() == [1, 4]
    assert places.tolist() == [1, 0, 1]


def test_a_key_has_one_shard_in_every_process() -> None:
    assert [shard_of(f'["{name}"]', 4) for name in ("IBM", "AIG", "BAC", "SPY")] == [2, 0, 3, 1]


NUMBERS = np.arange(4)
FOUND = Messages(
    "f\0" + "0" * 19, 7, 30, NUMBERS, NUMBERS * 10, NUMBERS * 11, NUMBERS + 7, NUMBERS + 5,
    NUMBERS + 1, NUMBERS * 2, NUMBERS % 2, pa.array([b"a", None, b"c", None], pa.binary()),
)  # fmt: skip


def test_some_of_them_travel_as_a_block() -> None:
    chosen = np.array([0, 2])
    [block] = unpacked(iter([packed([FOUND.block(3, chosen, ["x", "y"], np.array([1, 0]))])]))
    found = Messages.of_block(block)
    assert (block.stream, found.part, found.row, found.clock_ns) == (3, FOUND.part, 7, 30)
    assert [block.keys[code] for code in found.codes.tolist()] == ["y", "x"]
    assert found.times_ns.tolist() == [0, 20]
    assert found.greatest_ns.tolist() == [0, 22]
    assert (found.positions.tolist(), found.published_ms.tolist()) == ([7, 9], [0, 4])
    assert (found.firsts.tolist(), found.counts.tolist()) == ([5, 7], [1, 3])
    assert found.bodies.to_pylist() == [b"a", b"c"]


def test_neighbours_of_a_key_with_the_same_times_become_one_row() -> None:
    # Places 0, 1 and 4 are of one key and time; 2 has another key, 3 and 5 other times.
    ones = np.ones(6, np.int64)
    places = np.arange(6)
    found = Messages(
        "f\0", 0, 9, np.array([0, 0, 1, 1, 0, 0]), np.array([5, 5, 5, 6, 5, 5]),
        np.array([5, 5, 5, 5, 5, 6]), places, places, ones, places + 10, ones * 0,
        pa.array([b"0", b"1", b"2", b"3", b"4", b"5"], pa.binary()),
    )  # fmt: skip
    every = found.combined(np.ones(6, np.bool_))
    assert every.positions.tolist() == [2, 3, 4, 5]
    assert every.firsts.tolist() == [2, 3, 0, 5]
    assert every.counts.tolist() == [1, 1, 3, 1]
    assert every.published_ms.tolist() == [12, 13, 10, 15]
    assert every.codes.tolist() == [1, 1, 0, 0]
    assert every.bodies.to_pylist() == [b"2", b"3", b"4", b"5"]
    # A removal between two messages keeps them apart.
    apart = found.combined(np.array([True, False, True, True, True, True]))
    assert apart.positions.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_was_set_aside_brings_its_reasons_for_keys() -> None:
    aside = replace(FOUND, reasons=("so", "why", "so", "so"))
    [block] = unpacked(iter([packed([aside.block_of_reasons(-1)])]))
    found = Messages.set_aside(block)
    assert (block.stream, found.reasons) == (-1, aside.reasons)
    assert (found.codes.tolist(), found.bodies) == ([0, 0, 0, 0], FOUND.bodies)
