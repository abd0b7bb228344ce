"""A member is a position: small, and itself alone."""

from __future__ import annotations

from conflation.member import Member
from conflation.subscription import Command, LaneId, Subscription
from keys.spec import KeySpec


def make_member() -> Member:
    wish = Subscription("px", Command.SUBSCRIBE, LaneId(0, KeySpec(), "batch"))
    return Member("sub", "s", wish, position=3, cut=3, joined=3)


def test_a_new_member_has_got_nothing_and_given_nothing_up() -> None:
    member = make_member()
    assert (member.delivered, member.conflated_to) == (0, 0)


def test_members_are_told_apart_even_where_they_stand_alike() -> None:
    assert make_member() != make_member()


def test_a_member_is_slots_alone() -> None:
    assert not hasattr(make_member(), "__dict__")
