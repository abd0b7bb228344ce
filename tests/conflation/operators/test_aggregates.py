"""Running aggregates: equal to those recomputed from all records, and faster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame
from tidegate.conflation.operators import group_by
from tidegate.conflation.operators.aggregates import RunningGroup
from tidegate.conflation.operators.filter import FilterOperator
from tidegate.conflation.operators.group_by import GroupByOperator
from tidegate.conflation.subscription import FeedId
from tidegate.keys.projection import Aggregate, Column, Projection
from tidegate.keys.spec import KeySpec

EVERY = Projection.parse(
    "[" + ",".join(f"{name}(/v) AS /{name.lower()}" for name in Aggregate) + ",/v AS /last_v]",
    0,
    "[/g]",
    0,
)
NUMBERS = (b"1", b"1.0", b"-2", b"0.1", b"0.2", b"1e3", b"1e400", b"123456789012345678901234567890")
OTHERS = (b'"x"', b'"y"', b'"\\u0078"', b'""', b"null", b"true", b'{"a":1}', b"[2,3]", b"")
VALUES = st.sampled_from([*NUMBERS, *OTHERS])
CHANGES = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | VALUES), max_size=30)


def record(offset: int, key: str, value: bytes) -> Frame:
    field = b',"v":' + value if value else b""
    return Frame(offset, b'{"k":"%s","g":1%s}' % (key.encode(), field), key, offset)


@examples(30)
@given(VALUES, CHANGES, st.sets(st.integers(0, 30)))
@example(b'"x"', [("a", b'"y"'), ("b", b"null"), ("c", b'""'), ("a", None)], {2, 3, 4, 5})
@example(b'{"a":1}', [("a", b"true"), ("b", b'"x"'), ("c", b"7"), ("c", None)], {2, 3, 4, 5})
def test_they_are_what_all_records_give(
    first: bytes, changes: list[tuple[str, bytes | None]], looked_at: set[int]
) -> None:
    records: dict[str, Frame] = {"z": record(1, "z", first)}
    running = RunningGroup(EVERY, records)
    for offset, (key, value) in enumerate(changes, 2):
        before = records.pop(key, None)
        if value is not None:
            records[key] = record(offset, key, value)
        running.record_change(key, before)
        if offset in looked_at:
            assert running.row(records) == EVERY.row([one.payload for one in records.values()])
    assert running.row(records) == EVERY.row([one.payload for one in records.values()])


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a record was read for an aggregate."""
    counted: Counter[str] = Counter()
    cell, result = Column.cell, Column.result

    def counting(column: Column, text: bytes) -> Any:
        counted["cells"] += 1
        return cell(column, text)

    def counting_all(column: Column, texts: list[bytes]) -> Any:
        counted["cells"] += len(texts)
        return result(column, texts)

    monkeypatch.setattr(Column, "cell", counting)
    monkeypatch.setattr(Column, "result", counting_all)
    return counted


@pytest.mark.parametrize("size", [100, 2_000])
def test_a_row_costs_the_records_that_have_changed(cells: Counter[str], size: int) -> None:
    spec = KeySpec.of(["/k"])
    board = Board()
    sums = Projection.parse("[SUM(/v) AS /s]", 0, "[/g]", 0)
    groups = GroupByOperator(FilterOperator(FeedId(spec), spec, "px", board), sums)
    for offset in range(1, size + 1):
        groups.moves(record(offset, f"k{offset}", b"1"))
    assert value_of(groups) == size
    cells.clear()
    for offset in range(size + 1, size + 4):
        groups.moves(record(offset, "k7", b"2"))
    groups.moves(record(size + 4, "k8", b"3"))
    assert value_of(groups) == size + 1 + 2
    # Each of both is taken out and put in once, however often it has changed.
    assert cells["cells"] == 4


def test_a_group_that_shrinks_is_made_anew(cells: Counter[str]) -> None:
    spec = KeySpec.of(["/k"])
    sums = Projection.parse("[SUM(/v) AS /s]", 0, "[/g]", 0)
    groups = GroupByOperator(FilterOperator(FeedId(spec), spec, "px", Board()), sums)
    total = 2 * group_by.RUNNING_FROM
    for offset in range(1, total + 1):
        groups.moves(record(offset, f"k{offset}", b"1"))
    assert value_of(groups) == total
    for offset in range(total + 1, 2 * total):
        groups.moves(Frame(offset, b'{"k":"x","g":2,"v":1}', f"k{offset - total}", offset))
    assert value_of(groups) == 1
    groups.moves(record(2 * total, "new", b"5"))
    assert value_of(groups) == 6


def value_of(groups: GroupByOperator) -> int:
    """The sum of the first group whose row is made."""
    rows = [row for _, row in groups.materialize() if not row.removed]
    return int(msgspec.json.decode(rows[0].payload)["s"])
