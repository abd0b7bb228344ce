"""Messages that no row reports yet."""

from __future__ import annotations

import json

from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.lanes.accumulate import fold_of, lifted
from tidegate.conflation.lanes.unreported import Unreported, unreported_of
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

SUM = Reduce.of({"/v": "sum"})
RULES = LaneId(FeedId(KeySpec.of(["/k"])), merge=SUM)
_FOLD = fold_of(SUM)
assert _FOLD is not None
FOLD = _FOLD


def message(offset: int, value: int = 1) -> Frame:
    return Frame(offset, b'{"v":%d}' % value, "k", offset)


@rule("account-5")
def test_a_row_stands_for_them_and_for_itself() -> None:
    row = Unreported(Receipt(2, 3, 3)).on(message(9))
    assert receipt_of(row) == Receipt(3, 3, 3)
    assert row.payload == message(9).payload


def test_a_delta_stays_one() -> None:
    row = Row(9, b"{}", "k", patch=b"{}", first=9)
    told = Unreported(Receipt(2, 3, 3)).on(row)
    assert isinstance(told, Row)
    assert (told.patch, told.messages) == (b"{}", 3)


@rule("merge-6")
def test_reducers_combine_them_with_the_row() -> None:
    held = Unreported(Receipt(1, 3, 3), SUM, FOLD(b'{"v":5}'))
    row = held.on(lifted(message(9), RULES))
    assert json.loads(row.payload) == {"v": 6}
    assert receipt_of(row) == Receipt(2, 3, 3)


def test_rows_of_other_rules_only_count_them() -> None:
    held = Unreported(Receipt(1, 3, 3), Reduce.of({"/v": "max"}), FOLD(b'{"v":5}'))
    row = lifted(message(9), RULES)
    assert not held.fits(row)
    assert json.loads(held.on(row).payload) == {"v": 1}
    assert held.fits(message(9))


def test_the_older_ones_come_first() -> None:
    older, newer = Unreported(Receipt(1, 3, 3)), Unreported(Receipt(2, 5, 5))
    assert older.then(newer).count == Receipt(3, 3, 3)


@rule("delta-6")
def test_a_removal_that_counts_nothing_leaves_nothing() -> None:
    assert unreported_of(Tombstone(4, b"1", "k")) is None
    gone = Tombstone(4, b"1", "k", first=3, first_ms=3, messages=1)
    assert unreported_of(gone) == Unreported(Receipt(1, 3, 3))
