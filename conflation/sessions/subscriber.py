"""Who sits where: taking a seat, joining a lane, leaving."""

from __future__ import annotations

from dataclasses import replace

from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.lane import Lane, Member
from tidegate.conflation.sessions.backfill import begin
from tidegate.conflation.sessions.session import UNLIMITED, Session, Subscriber
from tidegate.conflation.subscription import Command, Subscription, seated_lane
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

NOWHERE = Bookmark("", 0)
"""No topic has this epoch: whoever goes on from here gets everything."""


def seat(
    name: str, session: Session, topic: Topic, subscription: Subscription, now: Instant
) -> Subscriber:
    """A new seat with what it begins with; it is in no lane yet.

    Raises:
        BookmarkExpired: see `begin`.
    """
    limits = session.limits if session.conflated else UNLIMITED
    opening = begin(name, topic, subscription, limits, now)
    member = Member(name, session.id, subscription, cut=topic.head)
    member.remember()
    return Subscriber(member, topic, opening, paused=subscription.paused)


def again(session: Session, given_up: Subscriber, topic: Topic, now: Instant) -> Subscriber:
    """A new seat for who had one in a topic that has begun again: it opens with a snapshot."""
    transfer, member = given_up.transfer, given_up.member
    wanted = member.subscription if transfer is None else transfer.subscription
    wanted = replace(wanted, resume=NOWHERE, replay=None, paused=given_up.paused)
    return seat(member.name, session, topic, wanted, now)


def joins_at_once(seat: Subscriber) -> bool:
    """Whether live rows are collected from now on: not for a `sow`, nor during a long replay."""
    subscription = seat.member.subscription
    is_replay = subscription.replay is not None and subscription.resume is None
    is_replay |= seat.opening is not None and seat.opening.past is not None
    return subscription.command is not Command.SOW and not is_replay


def lane_id_of(session: Session, topic: Topic, subscription: Subscription) -> LaneId:
    """The lane in which a subscription sits, by its topic's queue policy."""
    return seated_lane(subscription, topic.definition, conflated=session.conflated)


def join(session: Session, seat: Subscriber) -> None:
    """Take a place in the lane that the member's subscription names, at its head."""
    member = seat.member
    feed, lane = seat.topic.lane(lane_id_of(session, seat.topic, member.subscription))
    seat.feed, seat.lane = feed, lane
    lane.join(member)
    lane.joins += 1
    member.cut = seat.topic.head
    member.joined, member.passed = feed.accepted, seat.topic.filtered_out(feed)
    lane.members[member.place] = member


def leave(seat: Subscriber) -> None:
    """Give the place up, and what was waited for."""
    if seat.transfer is not None:
        seat.transfer.deadline = None
    if seat.opening is not None:
        seat.opening.deadline = None
    if seat.lane is not None:
        quit_lane(seat, seat.lane)


def quit_lane(seat: Subscriber, lane: Lane) -> None:
    """Leave a lane; one without members is forgotten."""
    place = seat.member.place
    del lane.members[place]
    seat.topic.feeds[lane.id.feed].watermarks.clear(place)
    if not lane.members:
        seat.topic.drop_lane(lane)
