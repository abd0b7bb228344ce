"""The rows that a subscription gets in addition to those of its lane."""

from __future__ import annotations

import msgspec

from tests.support.manual_driver import make_frames, tokens
from tests.support.rules import rule
from tidegate.conflation.boards.board import Pair
from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.sessions.rows import RowCursor, collapsing, deliveries
from tidegate.conflation.steps import RowBuild, Steps, finished


def pairs(*frames: Frame) -> list[Pair]:
    return [(frame.key, frame) for frame in frames]


def collapsed(pairs: list[Pair]) -> list[Pair]:
    return finished(collapsing(pairs))


@rule("interval-10")
def test_an_answer_in_pieces_has_its_id_on_the_last() -> None:
    cursor = RowCursor.catch_up(pairs(*make_frames("a1 b1 c1")), 9)
    pieces = [cursor.take(1, 0) for _ in range(3)]
    assert [tokens(piece.frames) for piece in pieces] == ["a1", "b1", "c1"]
    assert [piece.low_water for piece in pieces] == [None, None, 9]
    assert (cursor.is_out, cursor.is_done) == (True, True)


def test_only_values_that_stand_for_messages_are_deliveries() -> None:
    first, second, third = make_frames("a1 b1 c1")
    brought_in = Row(2, second.payload, second.key, first=2, messages=0)
    cursor = RowCursor.catch_up(pairs(first, Tombstone(4, b"{}", "k"), brought_in, third), 9)
    assert cursor.waiting() == 2
    assert deliveries(cursor.take(1 << 20, 0).frames) == 2
    assert cursor.waiting() == 0


@rule("change-1")
def test_the_later_row_of_a_key_wins_and_counts_for_both() -> None:
    a1, b1, a2 = make_frames("a1 b1 a2")
    together = [row for _, row in collapsed(pairs(a1, b1, a2))]
    assert tokens(together) == "b1 a2"
    assert together[1] == Row(3, a2.payload, a2.key, 3, first=1, first_ms=1, messages=2)


def test_a_row_that_stands_for_no_message_leaves_the_count_as_it_was() -> None:
    a1, a2 = make_frames("a1 a2")
    brought_in = Row(2, a2.payload, a2.key, 2, first=2, first_ms=2, messages=0)
    ((_, row),) = collapsed(pairs(a1, brought_in))
    assert row == Row(2, a2.payload, a2.key, 2, first=1, first_ms=1, messages=1)
    ((_, row),) = collapsed(pairs(brought_in, a2))
    assert row is a2


@rule("change-1")
def test_a_removal_leaves_the_value_that_it_takes_away() -> None:
    """Else it would be the removal of a key never sent."""
    a1, a2 = make_frames("a1 a2")
    gone = Tombstone(3, a2.payload, a2.key)
    rows = [row for _, row in collapsed(pairs(a1, a2, gone))]
    assert rows == [Row(2, a2.payload, a2.key, 2, first=1, first_ms=1, messages=2), gone]


@rule("delta-6", "change-1")
def test_a_value_after_a_removal_stands_for_all_that_came_before() -> None:
    a1, _, a3 = make_frames("a1 a2 a3")
    gone = Tombstone(2, a1.payload, a1.key, first=2, first_ms=2, messages=1)
    ((_, row),) = collapsed(pairs(a1, gone, a3))
    assert row == Row(3, a3.payload, a3.key, 3, first=1, first_ms=1, messages=3)


@rule("merge-1")
def test_what_is_never_to_be_conflated_stays_in_its_place() -> None:
    a1, a2, a3 = make_frames("a1 a2 a3")
    exempt = msgspec.structs.replace(a2, exempt=True)
    rows = [row for _, row in collapsed(pairs(a1, exempt, a3))]
    assert tokens(rows) == "a2 a3"
    assert receipt_of(rows[1]).messages == 2


def made_in_steps(pieces: int) -> RowBuild:
    def steps() -> Steps[list[Frame]]:
        for _ in range(pieces):
            yield
        return make_frames("a1 b1 c1")

    return RowBuild(steps(), count=lambda: 3)


def test_rows_that_are_made_in_steps_are_complete_when_they_are_needed() -> None:
    cursor = RowCursor(())
    cursor.begin(made_in_steps(4))
    assert (cursor.is_building, tokens(cursor.rows), cursor.waiting()) == (True, "", 3)
    cursor.complete()
    assert (cursor.is_building, tokens(cursor.rows), cursor.waiting()) == (False, "a1 b1 c1", 3)


def test_rows_that_take_one_step_are_there_at_once() -> None:
    cursor = RowCursor(())
    cursor.begin(made_in_steps(0))
    assert (cursor.is_building, tokens(cursor.rows)) == (False, "a1 b1 c1")
