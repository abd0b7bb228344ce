"""A member is a position: small, and itself alone."""

from __future__ import annotations

from conflation.frame import Frame, Row, Tombstone
from conflation.lane_id import FeedId, LaneId
from conflation.member import Member
from conflation.subscription import Command, Subscription
from keys.spec import KeySpec


def make_member() -> Member:
    wish = Subscription("px", Command.SUBSCRIBE, LaneId(FeedId(KeySpec())))
    return Member("sub", "s", wish, position=3, cut=3, joined=3)


def test_a_new_member_has_got_nothing_and_given_nothing_up() -> None:
    member = make_member()
    assert (member.delivered, member.conflated_to) == (0, 0)


def test_members_are_told_apart_even_where_they_stand_alike() -> None:
    assert make_member() != make_member()


def test_a_member_is_slots_alone() -> None:
    assert not hasattr(make_member(), "__dict__")


def test_without_a_snapshot_nothing_is_told_of_a_key_never_sent() -> None:
    """Rules 202 and 213."""
    member = make_member()
    member.sent = set()
    delta = Row(4, b'{"v":2}', "k", patch=b"{}")
    removal = Tombstone(5, b'{"v":2}', "k")
    assert not member.knows((removal,))
    assert member.as_known((removal,)) == []
    assert member.as_known((delta, removal)) == [delta.whole(), removal]
    assert member.as_known((Frame(6, b"1", "k"), delta)) == [Frame(6, b"1", "k"), delta]


def test_with_a_snapshot_the_rows_are_what_they_are() -> None:
    removal = Tombstone(5, b"1", "k")
    assert make_member().knows((removal,))
    assert make_member().as_known((removal,)) == [removal]
