"""The board against the plainest model there is: every change ever made, looked through anew."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from conflation.board import SPANS_MAX, Board, held_at
from tests.support.profiles import examples
from tests.support.world import make_frames, tokens


def board_of(text: str) -> Board:
    """A board on which these messages were put, one after the other."""
    board = Board()
    for frame in make_frames(text):
        board.put(frame.key, frame)
    return board


def test_a_board_keeps_the_newest_of_each_key_in_order_of_last_change() -> None:
    assert tokens(board_of("a1 b1 c1 a2").live()) == "b1 c1 a2"


def test_changes_are_those_after_a_position_oldest_first() -> None:
    board = board_of("a1 b1 c1 a2")
    assert tokens(board.changes(0)) == "b1 c1 a2"
    assert tokens(board.changes(2)) == "c1 a2"
    assert tokens(board.changes(4)) == ""


def test_changes_up_to_a_position_leave_out_what_changed_again_later() -> None:
    assert tokens(board_of("a1 b1 c1 a2").changes(0, until=3)) == "b1 c1"


def test_put_answers_with_what_it_replaces() -> None:
    board = Board()
    first, second = make_frames("a1 a2")
    assert board.put(first.key, first) is None
    assert board.put(second.key, second) is first


def test_a_key_that_left_is_a_tombstone_for_those_who_hold_it() -> None:
    board = board_of("a1 b1")
    assert board.remove('["a"]', 3) is not None
    assert tokens(board.live()) == "b1"
    assert board.get('["a"]') is None
    (tombstone,) = board.changes(2)
    assert tombstone.removed
    assert [held_at(tombstone, position) for position in range(5)] == [False, True, True] + [
        False
    ] * 2


def test_a_key_that_left_and_came_back_was_not_held_in_between() -> None:
    board = board_of("a1")
    board.remove('["a"]', 2)
    for frame in make_frames("a2", first=3):
        board.put(frame.key, frame)
    board.remove('["a"]', 4)
    (tombstone,) = board.changes(3)
    assert [held_at(tombstone, position) for position in range(5)] == [
        *(False, True, False, True, False)
    ]


def test_removing_what_is_not_there_changes_nothing() -> None:
    board = board_of("a1")
    assert board.remove('["z"]', 2) is None
    assert tokens(board.changes(0)) == "a1"


def test_trim_forgets_tombstones_and_refuses_positions_behind_them() -> None:
    board = board_of("a1 b1")
    board.remove('["a"]', 3)
    assert board.trim(3) == 1
    assert board.changes(3) == []
    with pytest.raises(AssertionError, match="horizon"):
        board.changes(2)


def test_a_board_is_fed_in_publication_order() -> None:
    board = board_of("a1 b1")
    with pytest.raises(AssertionError, match="order"):
        board.put('["c"]', make_frames("c1", first=2)[0])


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

    @rule(letter=st.sampled_from("abcd"), skipped=st.integers(0, 2))
    def remove(self, letter: str, skipped: int) -> None:
        self.offset += 1 + skipped
        board_key = f'["{letter}"]'
        before = self.state_at(self.offset).get(board_key)
        gone = self.board.remove(board_key, self.offset)
        assert (gone and gone.offset) == before
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
            for frame in self.board.changes(position):
                assert position < frame.offset <= self.offset
                if frame.removed:
                    self.check_focus(frame.key, held_at(frame, position), frame.key in replica)
                    replica.pop(frame.key, None)
                else:
                    replica.pop(frame.key, None)
                    replica[frame.key] = frame.offset
            assert list(replica.items()) == list(live.items())

    def check_focus(self, key: str, told: bool, held: bool) -> None:
        """Exact while the list of spans is whole; where old ones are merged, never too little."""
        lives = sum(change.key == key and not change.there for change in self.history)
        assert told >= held
        if lives <= SPANS_MAX:
            assert told == held

    @invariant()
    def an_answer_up_to_a_position_is_the_answer_without_what_came_later(self) -> None:
        for until in range(self.horizon, self.offset + 1):
            whole = self.board.changes(self.horizon)
            within = self.board.changes(self.horizon, until=until)
            assert within == [frame for frame in whole if frame.offset <= until]


TestBoardMachine = BoardMachine.TestCase
TestBoardMachine.settings = examples(60, nightly=5_000, steps=30)


def test_many_spans_of_one_key_stay_few_and_never_too_short() -> None:
    machine = BoardMachine()
    for _ in range(SPANS_MAX * 2):
        machine.put("a", 0)
        machine.remove("a", 1)
        machine.a_replica_from_any_position_reaches_the_live_state()
    (tombstone,) = machine.board.changes(0)
    assert len(tombstone.spans) == SPANS_MAX
