"""Who sits where: taking a seat, joining a lane, leaving."""

from __future__ import annotations

from dataclasses import replace

from conflation.bookmark import Bookmark
from conflation.duration import Instant
from conflation.lane_id import LaneId
from conflation.lanes.lane import Lane
from conflation.lanes.member import Member
from conflation.queue_lane import seated_lane
from conflation.sessions.beginning import begin
from conflation.sessions.session import UNLIMITED, Seat, Session
from conflation.subscription import Command, Subscription
from conflation.topics.topic import Topic

NOWHERE = Bookmark("", 0)
"""No topic has this epoch: whoever goes on from here gets everything."""


def seat(
    name: str, session: Session, topic: Topic, subscription: Subscription, now: Instant
) -> Seat:
    """A new seat with what it begins with; it is in no lane yet.

    Raises:
        BookmarkExpired: see `begin`.
    """
    limits = session.limits if session.conflated else UNLIMITED
    opening = begin(name, topic, subscription, limits, now)
    member = Member(name, session.id, subscription, cut=topic.head)
    member.remember()
    return Seat(member, topic, opening, paused=subscription.paused)


def again(session: Session, given_up: Seat, topic: Topic, now: Instant) -> Seat:
    """A new seat for who had one in a topic that has begun again: it opens with a snapshot."""
    transfer, member = given_up.transfer, given_up.member
    wanted = member.subscription if transfer is None else transfer.subscription
    wanted = replace(wanted, resume=NOWHERE, replay=None, paused=given_up.paused)
    return seat(member.name, session, topic, wanted, now)


def joins_at_once(seat: Seat) -> bool:
    """Whether live rows are collected from now on: not for a `sow`, nor during a long replay."""
    subscription = seat.member.subscription
    is_replay = subscription.replay is not None and subscription.resume is None
    is_replay |= seat.opening is not None and seat.opening.past is not None
    return subscription.command is not Command.SOW and not is_replay


def lane_id_of(session: Session, topic: Topic, subscription: Subscription) -> LaneId:
    """The lane in which a subscription sits, by its topic's queue policy."""
    return seated_lane(subscription, topic.definition, conflated=session.conflated)


def join(session: Session, seat: Seat) -> None:
    """Take a place in the lane that the member's subscription names, at its head."""
    member = seat.member
    feed, lane = seat.topic.lane(lane_id_of(session, seat.topic, member.subscription))
    seat.feed, seat.lane = feed, lane
    lane.join(member)
    lane.joins += 1
    member.cut = seat.topic.head
    member.joined, member.passed = feed.accepted, seat.topic.passed_over(feed)
    lane.members[member.place] = member


def leave(seat: Seat) -> None:
    """Give the place up, and what was waited for."""
    if seat.transfer is not None:
        seat.transfer.deadline = None
    if seat.opening is not None:
        seat.opening.deadline = None
    if seat.lane is not None:
        quit_lane(seat, seat.lane)


def quit_lane(seat: Seat, lane: Lane) -> None:
    """Leave a lane; one without members is forgotten."""
    place = seat.member.place
    del lane.members[place]
    seat.topic.feeds[lane.id.feed].alarms.clear(place)
    if not lane.members:
        seat.topic.drop_lane(lane)
