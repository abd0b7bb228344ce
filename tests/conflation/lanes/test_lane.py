"""What all lanes have in common: members in step share a batch, others get their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver, batches, make_frames, token, tokens
from tests.support.rules import rule
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame, Row, Tombstone
from tidegate.conflation.lanes.catch_up import CatchUp
from tidegate.conflation.lanes.member import LaneProgress, Member
from tidegate.conflation.subscription import Command, FeedId, LaneId, Subscription
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

KINDS = ("conflation=1s", "conflation=1s,oof", "conflation=1s,pace=key", "conflation=none")


@pytest.mark.parametrize("options", KINDS)
def test_members_in_step_take_the_very_same_batch(options: str) -> None:
    """Law 2: encoded once, whatever the kind of lane."""
    driver = ManualDriver()
    driver.topic()
    for session in ("s1", "s2", "s3"):
        driver.subscribe(options, session=session, command="sow_and_subscribe")
        driver.take(session)
    driver.publish("a1 b1")
    driver.wait("2s")
    taken = [batches(driver.take(session)) for session in ("s1", "s2", "s3")]
    assert taken[0][0] is taken[1][0] is taken[2][0]


@pytest.mark.parametrize("options", KINDS)
def test_a_member_behind_ends_where_the_others_are(options: str) -> None:
    driver = ManualDriver()
    driver.topic()
    for session in ("fast", "slow"):
        driver.subscribe(options, session=session, command="sow_and_subscribe")
        driver.take(session)
    for text in ("a1 b1", "a2", "c1 b2"):
        driver.publish(text)
        driver.wait("2s")
        driver.take("fast")
    rows = [frame for batch in batches(driver.take("slow")) for frame in batch.frames]
    newest = {frame.key: frame.payload for frame in rows}
    board = {frame.key: frame.payload for frame in driver.engine.topic("px").sow.board.live()}  # type: ignore[union-attr]  # a keyed topic has one
    assert newest == board


@pytest.mark.parametrize("options", KINDS)
def test_fields_that_were_not_selected_are_not_shown(options: str) -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("aX1")
    driver.subscribe(f"{options},select=[-/g]", command="sow_and_subscribe")
    driver.publish("aX2")
    driver.wait("2s")
    rows = [frame.payload for batch in batches(driver.take()) for frame in batch.frames]
    assert rows == [b'{"k":"a","v":1}', b'{"k":"a","v":2}']


# A member is a position: small, and itself alone.


def make_member(lane: dict[str, Any] | None = None, more: dict[str, Any] | None = None) -> Member:
    wanted = Subscription("px", Command.SUBSCRIBE, LaneId(FeedId(KeySpec()), **(lane or {})))
    wanted = replace(wanted, **(more or {}))
    return Member("sub", "s", wanted, LaneProgress(position=3), cut=3, joined=3)


def test_a_new_member_has_got_nothing_and_given_nothing_up() -> None:
    member = make_member()
    assert (member.delivered, member.conflated_to) == (0, 0)


def test_members_at_equal_positions_are_not_equal() -> None:
    assert make_member() != make_member()


def test_a_member_is_slots_alone() -> None:
    assert not hasattr(make_member(), "__dict__")


@rule("removal-2")
def test_the_removal_of_a_key_never_sent_is_not_sent() -> None:
    member = make_member()
    member.sent = set()
    value, removal = Frame(4, b"1", "k"), Tombstone(5, b"1", "k")
    assert not member.accepts_shared((removal,))
    assert member.personalize((removal,)) == []
    assert member.personalize((value, removal)) == [value, removal]
    assert member.personalize((removal,)) == []


@rule("delta-3")
def test_a_delta_needs_the_value_that_it_is_against() -> None:
    member = make_member()
    member.based = set()
    delta, removal = Row(4, b'{"v":2}', "k", patch=b"{}"), Tombstone(5, b'{"v":2}', "k")
    assert not member.accepts_shared((delta,))
    assert member.personalize((delta, delta)) == [delta.whole(), delta]
    assert member.personalize((removal, delta)) == [removal, delta.whole()]


@rule("removal-2", "delta-3")
@pytest.mark.parametrize(
    ("lane", "more", "sent", "based"),
    [
        ({"oof": True}, {}, set(), None),
        ({"delta": True}, {}, None, set()),
        ({"oof": True, "delta": True}, {"command": Command.SOW_AND_SUBSCRIBE}, None, None),
        ({"oof": True, "delta": True}, {"resume": Bookmark("e", 1)}, None, set()),
        ({}, {}, None, None),
    ],
)
def test_what_must_be_remembered(
    lane: dict[str, Any], more: dict[str, Any], sent: set[str] | None, based: set[str] | None
) -> None:
    """Nothing of who began with everything; a resumed one may hold any key."""
    member = make_member(lane, more)
    member.track_sent()
    assert (member.sent, member.based) == (sent, based)


def test_with_a_snapshot_the_rows_are_what_they_are() -> None:
    removal = Tombstone(5, b"1", "k")
    assert make_member().accepts_shared((removal,))
    assert make_member().personalize((removal,)) == [removal]


# A round: each key once, as it is when it is sent.


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
        heard += going.next_rows(board, 1)
        say(board, text)
    assert tokens(heard) == "a1 b2 c2"
    assert going.is_over
    assert sorted(going.ahead.values()) == [4, 6], "b2 and c2 came after the begin"


def test_what_is_still_to_come_is_shown_as_it_would_be_sent() -> None:
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head)
    going.next_rows(board, 1)
    say(board, "c2 a2")
    assert [token(row) for _, row in going.rest(board)] == ["b1", "c2"]


@rule("interval-10")
def test_a_piece_has_the_size_of_what_is_sent() -> None:
    """One row at least."""
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head)
    size = len(going.rows[0][1].payload)
    say(board, "b2000")
    assert tokens(going.next_rows(board, 2 * size)) == "a1"
    assert tokens(going.next_rows(board, 0)) == "b2000"
    assert not going.is_over


@rule("interval-10")
def test_nothing_goes_ahead_of_what_is_not_to_be_conflated() -> None:
    """Neither the message itself, nor what replaced it."""
    board = a_board("a1 b1")
    going = CatchUp(board.rows(0), board.head)
    say(board, "a2", exempt=True)
    assert tokens(going.next_rows(board, 1)) == "a1"
    say(board, "a3 b2")
    assert tokens(going.next_rows(board, 1)) == "b1"
    assert going.ahead == {}


def test_a_queue_is_in_publication_order() -> None:
    """`placement=append`: what is replaced stands at the end, which is the next round's."""
    board = a_board("a1 b1 c1")
    going = CatchUp(board.rows(0), board.head, appends=True)
    assert tokens(going.next_rows(board, 1)) == "a1"
    say(board, "b2")
    assert [token(row) for _, row in going.rest(board)] == ["c1"]
    assert tokens(going.next_rows(board, 1)) == "c1"
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
    assert tokens(going.next_rows(board, 100)) == "a1 b2"
    assert going.ahead == {'["b"]': 3}, "so it is not told again"
