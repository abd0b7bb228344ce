"""Which message was the first that a row stands for."""

from __future__ import annotations

from conflation.board import Board
from conflation.firsts import Firsts
from conflation.frame import Frame
from tests.support.world import World, batches, make_frames


def put(board: Board, firsts: Firsts, text: str) -> list[Frame]:
    frames = make_frames(text, first=board.head + 1)
    for frame in frames:
        board.put(frame.key, frame)
    firsts.note([(frame.key, frame) for frame in frames])
    return frames


def test_a_row_names_the_first_message_since_its_keys_last_release() -> None:
    """Rule 18."""
    board, firsts = Board(), Firsts()
    put(board, firsts, "a1 b1 a2")
    firsts.release_all(board)
    assert firsts.tell(board.changes(0)) == [2, 1]
    put(board, firsts, "b2")
    firsts.release_all(board)
    assert firsts.tell(board.changes(0)) == [1, 4]


def test_only_the_keys_that_leave_are_released() -> None:
    board, firsts = Board(), Firsts()
    put(board, firsts, "a1 b1 a2 b2")
    firsts.release(['["a"]'], board)
    put(board, firsts, "b3")
    firsts.release(['["b"]'], board)
    assert firsts.tell(board.changes(0)) == [1, 2]


def test_a_member_behind_is_told_the_same() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s", tells_first=True)
    world.say("a1 a2 b1 b2")
    world.wait("1s")
    world.say("b3 b4")
    world.wait("1s")
    (batch,) = batches(world.take())
    assert [frame.offset for frame in batch.frames] == [2, 6]
    assert list(batch.firsts) == [1, 5]


def test_memory_is_bounded_by_the_keys() -> None:
    board, firsts = Board(), Firsts()
    for _ in range(50):
        put(board, firsts, "a1 a2 b1 b2")
        firsts.release_all(board)
    assert len(firsts._first_of_row) == 2
