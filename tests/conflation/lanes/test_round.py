"""A round: each key once, as it is when it is sent."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import make_frames, token, tokens
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.conflation.lanes.member import CatchUp


def a_board(text: str) -> Board:
    board = Board()
    for frame in make_frames(text):
        board.put(frame.key, frame)
    return board


def say(board: Board, text: str, *, exempt: bool = False) -> None:
    for made in make_frames(text, board.head + 1):
        board.put(made.key, Frame(made.offset, made.payload, made.key, 0, exempt))


@rule("interval-10")
def test_keys_have_their_turn_in_the_order_of_its_begin() -> None:
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head)
    heard = []
    for text in ("b2", "a2 c2", "b3"):
        heard += going.take(board, 1)
        say(board, text)
    assert tokens(heard) == "a1 b2 c2"
    assert going.is_over
    assert sorted(going.ahead.values()) == [4, 6], "b2 and c2 came after the begin"


def test_what_is_still_to_come_is_shown_as_it_would_be_sent() -> None:
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head)
    going.take(board, 1)
    say(board, "c2 a2")
    assert [token(row) for _, row in going.rest(board)] == ["b1", "c2"]


@rule("interval-10")
def test_a_piece_has_the_size_of_what_is_sent() -> None:
    """One row at least."""
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head)
    size = len(going.rows[0][1].payload)
    say(board, "b2000")
    assert tokens(going.take(board, 2 * size)) == "a1"
    assert tokens(going.take(board, 0)) == "b2000"
    assert not going.is_over


@rule("interval-10")
def test_nothing_goes_ahead_of_what_is_not_to_be_conflated() -> None:
    """Neither the message itself, nor what replaced it."""
    board = a_board("a1 b1")
    going = CatchUp(board.rows(0), board.head)
    say(board, "a2", exempt=True)
    assert tokens(going.take(board, 1)) == "a1"
    say(board, "a3 b2")
    assert tokens(going.take(board, 1)) == "b1"
    assert going.ahead == {}


def test_a_queue_is_in_publication_order() -> None:
    """`placement=append`: what is replaced stands at the end, which is the next round's."""
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head, appends=True)
    assert tokens(going.take(board, 1)) == "a1"
    say(board, "b2")
    assert [token(row) for _, row in going.rest(board)] == ["c1"]
    assert tokens(going.take(board, 1)) == "c1"
    assert going.is_over
    assert going.ahead == {}
    assert tokens(row for _, row in board.rows(going.position)) == "b2"


@rule("interval-10")
def test_of_a_key_that_left_the_last_value_goes() -> None:
    """With what took its place, and was taken away itself."""
    board = a_board("a1 b1")
    going = CatchUp(board.rows(0), board.head)
    say(board, "b2")
    board.remove('["b"]', Tombstone(4, b"", '["b"]'))
    assert tokens(going.take(board, 100)) == "a1 b2"
    assert going.ahead == {'["b"]': 3}, "so it is not told again"
