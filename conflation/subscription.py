"""Subscriptions as granted, and the lane that a topic's queue policy makes of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.conflation.definition import Definition, QueuePolicy
from tidegate.conflation.lane_id import LaneId
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.order import Order
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.rate import Rate

BATCH_SIZE = 100


class Command(StrEnum):
    """The commands of AMPS."""

    SUBSCRIBE = "subscribe"
    SOW = "sow"
    SOW_AND_SUBSCRIBE = "sow_and_subscribe"
    DELTA_SUBSCRIBE = "delta_subscribe"
    SOW_AND_DELTA_SUBSCRIBE = "sow_and_delta_subscribe"

    @property
    def queries(self) -> bool:
        """True if it begins with the state of the world."""
        return self not in (Command.SUBSCRIBE, Command.DELTA_SUBSCRIBE)

    @property
    def is_delta(self) -> bool:
        """True if changed fields are enough."""
        return self in (Command.DELTA_SUBSCRIBE, Command.SOW_AND_DELTA_SUBSCRIBE)


class NotFound(StrEnum):
    """What to do with a bookmark that the journal does not reach (`bookmark_not_found`)."""

    EPOCH = "epoch"
    NOW = "now"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Replay:
    """A bookmark subscription: every message since `start`, then the live ones.

    `start` is None for the journal's beginning (`epoch`), a bookmark, or wall time in
    milliseconds: the first message not older.
    """

    start: Bookmark | int | None
    not_found: NotFound = NotFound.NOW
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class Auto:
    """`conflation=auto`: the interval may move between these bounds."""

    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Shown:
    """What the gateway shows beside values; the engine only keeps it with the subscription."""

    timestamp: bool = False
    receipt: bool = False
    send_keys: bool = False
    no_sowkey: bool = False
    progress: bool = False
    max_age_ns: int | None = None
    auto: Auto | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """One request as granted: its command, its lane, and what it starts with.

    `resume` is an id that was seen before (CONTRACT 4.2), `replay` AMPS's bookmark. `order` is
    that of snapshot rows, of which `batch_size` are sent at a time. `topic` may be a pattern.
    `counted`: receipts of rows are shown.
    """

    topic: str
    command: Command
    lane_id: LaneId
    resume: Bookmark | None = None
    replay: Replay | None = None
    order: Order | None = None
    batch_size: int = BATCH_SIZE
    paused: bool = False
    shown: Shown = Shown()
    counted: bool = False


# Queue lanes: what a topic's queue policy makes of a subscription that asks for every message.


def effective_lane(
    subscription: Subscription, definition: Definition, *, conflated: bool
) -> LaneId:
    """The lane that a subscription is in: on a topic that always conflates, at once.

    A session that is not `conflated` gets every message there too.
    """
    lane_id = subscription.lane_id
    if lane_id.interval_ns or not conflated or definition.policy is not QueuePolicy.ALWAYS:
        return lane_id
    return replace(queue_rules(lane_id, definition), always=True, counted=subscription.counted)


def queue_rules(lane_id: LaneId, definition: Definition) -> LaneId:
    """Return the rules by which the queue of a lane is conflated: those of its topic."""
    # Rows of windows and groups are made of records: there are no messages to merge.
    if lane_id.feed.shape is not None:
        return lane_id
    # Deltas say how a record changes: they are composed, and nothing is merged or matched.
    if lane_id.delta:
        return replace(lane_id, replaces=definition.replaces)
    return replace(
        lane_id,
        merge=merge_of(definition),
        match=match_of(definition, lane_id.feed.key_spec),
        replaces=definition.replaces,
    )


def merge_of(definition: Definition) -> Reduce | Merger | None:
    """Return the topic's reducers or merger; None where the newest message is kept."""
    merge = definition.merge
    # Plain reducers keep the last message: the board does that without looking at any.
    return None if isinstance(merge, Reduce) and merge.is_plain else merge


def match_of(definition: Definition, key_spec: KeySpec) -> KeySpec | Matcher | None:
    """Return the topic's `match`; None where it asks for key fields, which are equal already."""
    match = definition.match
    if isinstance(match, KeySpec) and set(match.paths) <= set(key_spec.paths):
        return None
    return match
