"""What a subscription is owed beside its lane."""

from __future__ import annotations

from conflation.frame import Frame, Row, Tombstone
from conflation.owed import Carry, Owed
from tests.support.world import make_frames, tokens


def test_an_answer_in_pieces_has_its_id_on_the_last() -> None:
    """Rule 205."""
    owed = Owed([(frame, True) for frame in make_frames("a1 b1 c1")], 9)
    pieces = [owed.take(1)[0] for _ in range(3)]
    assert [tokens(piece.frames) for piece in pieces] == ["a1", "b1", "c1"]
    assert [piece.low_water for piece in pieces] == [None, None, 9]
    assert owed.is_over


def test_only_values_that_were_published_to_it_count_as_deliveries() -> None:
    first, second, third = make_frames("a1 b1 c1")
    gone = Tombstone(4, b"{}", "k")
    owed = Owed([(first, True), (gone, True), (second, False), (third, True)], 9)
    assert owed.waiting() == 2
    assert owed.take(1 << 20)[1] == 2
    assert owed.waiting() == 0


def test_the_later_row_of_a_key_wins_and_counts_for_both() -> None:
    """Rule 241."""
    a1, b1, a2 = make_frames("a1 b1 a2")
    together = Carry([("a", a1), ("b", b1)], None).together([("a", a2)])
    assert tokens(together) == "b1 a2"
    assert together[1] == Row(3, a2.payload, a2.key, 3, first=1, first_ms=1, messages=2)


def test_a_removal_wins_and_stands_for_what_it_took_away() -> None:
    """Rule 212."""
    gone = Tombstone(4, b"{}", '["a"]')
    (row,) = Carry([("a", Frame(1, b"1", "a"))], None).together([("a", gone)])
    assert row == Tombstone(4, b"{}", '["a"]', first=1, messages=1)
