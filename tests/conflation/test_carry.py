"""What a move carries: the newest of each key, due at one deadline."""

from conflation.board import Board
from conflation.carry import Carry
from conflation.frame import Frame
from conflation.lane import BatchLane
from conflation.member import Member
from conflation.subscription import Command, LaneId, Subscription
from keys.spec import KeySpec

LANE_ID = LaneId(10, KeySpec.of(["/t"]), "batch")


def frame(offset: int, name: str) -> Frame:
    return Frame(offset, name.encode(), name)


def table() -> tuple[Board, BatchLane, Member]:
    board = Board()
    for row in (frame(1, "A"), frame(2, "B")):
        board.put(row.key, row)
    subscription = Subscription("p", Command.SUBSCRIBE, LANE_ID)
    return board, BatchLane(LANE_ID, board, 2), Member("s", "a", subscription, 2, 2, 2)


def test_what_is_overtaken_is_no_longer_owed() -> None:
    board, lane, member = table()
    carry = Carry([frame(1, "A"), frame(2, "B")], deadline=10)
    assert carry.waiting(board) == 2
    board.put("A", frame(3, "A"))
    assert carry.waiting(board) == 1
    assert carry.release(board, lane, member)
    assert [row.offset for row in carry.rows] == [2, 3]  # B as carried, A as it is now
    assert member.position == 3


def test_pieces_have_an_id_only_at_the_end() -> None:
    board, lane, member = table()
    carry = Carry([frame(1, "A"), frame(2, "B")], deadline=10)
    carry.release(board, lane, member)
    first, second = carry.take(1), carry.take(1)
    assert first is not None
    assert second is not None
    assert (first.low_water, second.low_water) == (None, 2)
    assert carry.over


def test_nothing_left_to_give_is_told() -> None:
    board, lane, member = table()
    carry = Carry([frame(1, "A")], deadline=10)
    board.put("A", frame(3, "A"))
    member.position = 3  # the lane has sent it
    assert not carry.release(board, lane, member)
    assert carry.over
