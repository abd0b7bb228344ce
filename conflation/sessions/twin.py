"""A twin: a copy of a seat with its board and lane, as they stand now, that goes its own way."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from conflation.lanes.lane import Lane
from conflation.sessions.session import Seat, Transfer
from conflation.topics.feed import Feed
from conflation.topics.topic import Topic


def twin_of(seat: Seat) -> Seat:
    """The same seat, alone in its lane, in a topic that has no other feed.

    What never changes is shared with the original: it costs references, a few for each key. Of a
    window or of groups the order is made anew, as for a new filter. Records do not expire here:
    that is for the original to say.
    """
    topic = _topic(seat.topic)
    member = copy.deepcopy(seat.member, {id(seat.member.subscription): seat.member.subscription})
    twin = Seat(member, topic, paused=seat.paused)
    if seat.feed is not None and seat.lane is not None:
        twin.feed = _feed(topic, seat.feed)
        twin.lane = _lane(seat.lane, twin.feed)
        twin.lane.members[member.place] = member
        twin.feed.adopt(twin.lane)
    if seat.opening is not None:
        twin.opening = copy.copy(seat.opening)
        twin.opening.pacing = copy.copy(seat.opening.pacing)
        twin.opening.past = copy.copy(seat.opening.past)
    if seat.transfer is not None:
        twin.transfer = Transfer(seat.transfer.subscription, seat.transfer.deadline)
    twin.owed = copy.copy(seat.owed)
    return twin


def _topic(real: Topic) -> Topic:
    topic = Topic(real.name, replace(real.definition, expiration_ns=None), real.epoch)
    topic.head = real.head
    topic.journal = copy.deepcopy(real.journal)
    if topic.sow is not None and real.sow is not None:
        topic.sow.take_over(real.sow)
    return topic


def _feed(topic: Topic, real: Feed) -> Feed:
    feed = topic.feed(real.id)
    feed.take_over(real)
    return feed


def _lane(real: Lane, feed: Feed) -> Lane:
    """All that a lane holds, without its other members."""
    shared: dict[int, Any] = {id(real.board): feed.board, id(real.members): {}}
    return copy.deepcopy(real, shared)
