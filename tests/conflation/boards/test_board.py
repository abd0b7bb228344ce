"""The board against the simplest model: it keeps every change, and scans all of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.manual_driver import make_frames, tokens
from tests.support.profiles import examples
from tidegate.conflation.boards.board import SPANS_MAX, Board
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone


def board_of(text: str) -> Board:
    """A board on which these messages were put, one after the other."""
    board = Board()
    for frame in make_frames(text):
        board.put(frame.key, frame)
    return board


def told(board: Board, since: int, until: int | None = None, *, oof: bool = True) -> str:
    """The tokens of an answer."""
    return tokens(frame for _, frame in board.rows(since, until, oof=oof))


def tombstone_of(board: Board, since: int) -> Tombstone:
    """The one removal in an answer."""
    ((_, found),) = board.rows(since, oof=True)
    assert isinstance(found, Tombstone)
    return found


def test_a_board_keeps_the_newest_of_each_key_in_order_of_last_change() -> None:
    assert tokens(board_of("a1 b1 c1 a2").live()) == "b1 c1 a2"


def test_an_exempt_message_is_kept_when_many_are_put_together() -> None:
    frames = [msgspec.structs.replace(frame, exempt=True) for frame in make_frames("a1 a2")]
    board = Board()
    board.put_all([*frames, *make_frames("b1 a3", first=3)])
    assert told(board, 0) == "a1 a2 b1 a3"


@pytest.mark.rule("board-1")
def test_changes_are_those_after_a_position_oldest_first() -> None:
    board = board_of("a1 b1 c1 a2")
    assert told(board, 0) == "b1 c1 a2"
    assert told(board, 2) == "c1 a2"
    assert told(board, 4) == ""


def test_changes_up_to_a_position_leave_out_what_changed_again_later() -> None:
    assert told(board_of("a1 b1 c1 a2"), 0, until=3) == "b1 c1"


def test_put_answers_with_what_it_replaces() -> None:
    board = Board()
    first, second = make_frames("a1 a2")
    assert board.put(first.key, first) is None
    assert board.put(second.key, second) is first


def test_parts_of_an_answer_are_together_the_answer() -> None:
    board = board_of("a1 b1 c1 a2 d1 b2")
    parts: list[Frame] = []
    since = -1
    while part := board.part(since, 2, cut=6):
        assert len(part) <= 2
        parts += [frame for _, frame in part]
        since = parts[-1].offset
    assert tokens(parts) == "c1 a2 d1 b2"


def test_a_part_tells_what_left_after_the_cut_held_or_not() -> None:
    board = board_of("a1 b1")
    board.remove('["b"]', Tombstone(3, b"", '["b"]'))
    assert [frame.removed for _, frame in board.part(-1, 9)] == [False]
    assert [frame.removed for _, frame in board.part(1, 9)] == []
    assert [frame.removed for _, frame in board.part(1, 9, cut=1)] == [True]


@pytest.mark.rule("board-2")
def test_a_key_that_left_is_a_tombstone_for_those_who_hold_it() -> None:
    board = board_of("a1 b1")
    assert board.remove('["a"]', Tombstone(3, b"")) is not None
    assert tokens(board.live()) == "b1"
    assert board.get('["a"]') is None
    tombstone = tombstone_of(board, 2)
    assert tombstone.removed
    assert [tombstone.held_at(position) for position in range(5)] == [False, True, True] + [
        False
    ] * 2


def test_a_key_that_left_and_came_back_was_not_held_in_between() -> None:
    board = board_of("a1")
    board.remove('["a"]', Tombstone(2, b""))
    for frame in make_frames("a2", first=3):
        board.put(frame.key, frame)
    board.remove('["a"]', Tombstone(4, b""))
    tombstone = tombstone_of(board, 3)
    assert [tombstone.held_at(position) for position in range(5)] == [
        *(False, True, False, True, False)
    ]


def test_the_oldest_are_those_that_live_up_to_an_offset() -> None:
    board = board_of("a1 b1 c1 d1 b2")
    board.remove('["c"]', Tombstone(6, b""))
    assert tokens(board.oldest_through(4, 10)) == "a1 d1"
    assert tokens(board.oldest_through(6, 2)) == "a1 d1"
    assert tokens(board.oldest_through(6, 10)) == "a1 d1 b2"
    assert board.oldest_through(0, 10) == []


def test_of_one_key_the_answer_is_that_of_all() -> None:
    board = board_of("a1 b1 a2")
    board.remove('["b"]', Tombstone(4, b"", '["b"]'))
    for since in range(5):
        for oof in (True, False):
            rows = dict(board.rows(since, oof=oof))
            for board_key in ('["a"]', '["b"]', '["c"]'):
                assert board.row(board_key, since, oof=oof) == rows.get(board_key)


def test_a_board_that_stands_as_another_goes_its_own_way() -> None:
    board, other = board_of("a1 b1 a2"), Board()
    board.remove('["b"]', Tombstone(4, b"", '["b"]'))
    other.take_over(board)
    assert told(other, 0) == told(board, 0)
    assert (other.head, len(other), other.tombstones) == (4, 1, 1)
    board.put('["c"]', make_frames("c1", 5)[0])
    assert (other.head, len(other)) == (4, 1)


def test_removing_what_is_not_there_changes_nothing() -> None:
    board = board_of("a1")
    assert board.remove('["z"]', Tombstone(2, b"")) is None
    assert told(board, 0) == "a1"


@pytest.mark.rule("board-3")
def test_trim_forgets_tombstones_and_refuses_positions_behind_them() -> None:
    board = board_of("a1 b1")
    board.remove('["a"]', Tombstone(3, b""))
    assert board.trim(3) == 1
    assert told(board, 3) == ""
    with pytest.raises(AssertionError, match="horizon"):
        board.rows(2)


def test_a_board_is_fed_in_publication_order() -> None:
    board = board_of("a1 b1")
    with pytest.raises(AssertionError, match="order"):
        board.put('["c"]', make_frames("c1", first=1)[0])


@dataclass(frozen=True)
class Change:
    """One thing that ever happened to a board; no token means that the key left."""

    offset: int
    key: str
    there: bool


class BoardMachine(RuleBasedStateMachine):
    """Rules change a board and write down what they did; invariants look it up there."""

    def __init__(self) -> None:
        super().__init__()
        self.board = Board()
        self.history: list[Change] = []
        self.offset = 0
        self.horizon = 0

    def state_at(self, position: int) -> dict[str, int]:
        """Key to offset of the newest message, for keys that were there at a position."""
        state: dict[str, int] = {}
        for change in self.history:
            if change.offset <= position:
                state.pop(change.key, None)
                if change.there:
                    state[change.key] = change.offset
        return state

    @rule(letter=st.sampled_from("abcd"), skipped=st.integers(0, 2))
    def put(self, letter: str, skipped: int) -> None:
        self.offset += 1 + skipped
        (frame,) = make_frames(f"{letter}{self.offset}", first=self.offset)
        before = self.state_at(self.offset).get(frame.key)
        replaced = self.board.put(frame.key, frame)
        assert (replaced and replaced.offset) == before
        self.history.append(Change(self.offset, frame.key, there=True))

    @rule(letters=st.lists(st.sampled_from("abcd"), min_size=1, max_size=4))
    def put_all(self, letters: list[str]) -> None:
        words = (f"{letter}{self.offset + at}" for at, letter in enumerate(letters, 1))
        frames = make_frames(" ".join(words), first=self.offset + 1)
        self.board.put_all(frames)
        self.history += [Change(frame.offset, frame.key, there=True) for frame in frames]
        self.offset = frames[-1].offset

    @rule(letter=st.sampled_from("abcd"), skipped=st.integers(0, 2))
    def remove(self, letter: str, skipped: int) -> None:
        self.offset += 1 + skipped
        board_key = f'["{letter}"]'
        before = self.state_at(self.offset).get(board_key)
        gone = self.board.remove(board_key, Tombstone(self.offset, b""))
        assert (gone and gone.put_offset) == before
        if before is not None:
            self.history.append(Change(self.offset, board_key, there=False))

    @precondition(lambda self: self.offset > self.horizon)
    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        behind, self.horizon = self.horizon, max(self.horizon, round(self.offset * share))
        newest = {change.key: change for change in self.history}.values()
        gone = [change for change in newest if not change.there]
        stale = [change for change in gone if behind < change.offset <= self.horizon]
        assert self.board.trim(self.horizon) == len(stale)

    @invariant()
    def live_frames_are_the_state_in_order_of_last_change(self) -> None:
        state = self.state_at(self.offset)
        live = self.board.live()
        assert [(frame.key, frame.offset) for frame in live] == list(state.items())
        assert len(self.board) == len(live)
        for letter in "abcd":
            newest = self.board.get(f'["{letter}"]')
            assert (newest and newest.offset) == state.get(f'["{letter}"]')

    @invariant()
    def a_replica_from_any_position_reaches_the_live_state(self) -> None:
        live = self.state_at(self.offset)
        for position in range(self.horizon, self.offset + 1):
            replica = self.state_at(position)
            for board_key, frame in self.board.rows(position, oof=True):
                assert position < frame.offset <= self.offset
                held = replica.pop(board_key, None)
                if frame.removed:
                    assert held is not None or self.merges_spans(board_key)
                else:
                    replica[board_key] = frame.offset
            assert list(replica.items()) == list(live.items())

    def merges_spans(self, board_key: str) -> bool:
        """Whether an old position may be told of a removal that it does not need (rule board-2)."""
        lives = sum(change.key == board_key and not change.there for change in self.history)
        return lives > SPANS_MAX

    @invariant()
    def without_removals_no_value_is_lost(self) -> None:
        """Rule removal-4: the last value of each key that was put since a position is told."""
        for position in range(self.horizon, self.offset + 1):
            put = {
                change.key: change.offset
                for change in self.history
                if change.there and change.offset > position
            }
            rows = {key: frame.offset for key, frame in self.board.rows(position)}
            assert rows == put

    @invariant()
    def an_answer_up_to_a_position_is_what_was_newest_then(self) -> None:
        """Rule interval-10, and what a removal takes away later is told before it."""
        for until in range(self.horizon, self.offset + 1):
            within = self.board.rows(self.horizon, until)
            assert all(self.horizon < frame.offset <= until for _, frame in within)
            whole = dict(self.board.rows(self.horizon))
            assert dict(within) == {k: f for k, f in whole.items() if f.offset <= until}


TestBoardMachine = BoardMachine.TestCase
TestBoardMachine.settings = examples(25, steps=30)


@pytest.mark.rule("board-2")
def test_many_spans_of_one_key_stay_few_and_never_too_short() -> None:
    machine = BoardMachine()
    for _ in range(SPANS_MAX * 2):
        machine.put("a", 0)
        machine.remove("a", 1)
        machine.a_replica_from_any_position_reaches_the_live_state()
    tombstone = tombstone_of(machine.board, 1)
    assert len(tombstone.spans) == SPANS_MAX


@pytest.mark.rule("removal-2")
def test_who_may_hold_anything_is_told_of_all_that_left() -> None:
    """Also of keys that came after the position."""
    board = Board()
    for offset, name in enumerate("abc", 1):
        board.put(name, Frame(offset, b"", name))
    board.remove("b", Tombstone(4, b"", "b", reason=RemovalReason.DELETED))
    board.remove("c", Tombstone(5, b"", "c", reason=RemovalReason.DELETED))
    assert [gone.key for gone in board.departed(2)] == ["c", "b"]
    assert board.departed(5) == []
