"""A member is a position: small, and itself alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Row, Tombstone
from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.subscription import Command, Subscription
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark


def make_member(lane: dict[str, Any] | None = None, more: dict[str, Any] | None = None) -> Member:
    wish = Subscription("px", Command.SUBSCRIBE, LaneId(FeedId(KeySpec()), **(lane or {})))
    wish = replace(wish, **(more or {}))
    return Member("sub", "s", wish, position=3, cut=3, joined=3)


def test_a_new_member_has_got_nothing_and_given_nothing_up() -> None:
    member = make_member()
    assert (member.delivered, member.conflated_to) == (0, 0)


def test_members_are_told_apart_even_where_they_stand_alike() -> None:
    assert make_member() != make_member()


def test_a_member_is_slots_alone() -> None:
    assert not hasattr(make_member(), "__dict__")


@rule("removal-2")
def test_the_removal_of_a_key_never_sent_is_not_told() -> None:
    member = make_member()
    member.sent = set()
    value, removal = Frame(4, b"1", "k"), Tombstone(5, b"1", "k")
    assert not member.knows((removal,))
    assert member.as_known((removal,)) == []
    assert member.as_known((value, removal)) == [value, removal]
    assert member.as_known((removal,)) == []


@rule("delta-3")
def test_a_delta_needs_the_value_that_it_is_against() -> None:
    member = make_member()
    member.based = set()
    delta, removal = Row(4, b'{"v":2}', "k", patch=b"{}"), Tombstone(5, b'{"v":2}', "k")
    assert not member.knows((delta,))
    assert member.as_known((delta, delta)) == [delta.whole(), delta]
    assert member.as_known((removal, delta)) == [removal, delta.whole()]


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
    member.remember()
    assert (member.sent, member.based) == (sent, based)


def test_with_a_snapshot_the_rows_are_what_they_are() -> None:
    removal = Tombstone(5, b"1", "k")
    assert make_member().knows((removal,))
    assert make_member().as_known((removal,)) == [removal]
