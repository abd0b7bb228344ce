"""Definitions of topics: key, type, history, and how a queue policy changes a lane."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.conflation.subscription import LaneId, Subscription
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


class QueuePolicy(StrEnum):
    """The effect of a full queue on this topic's messages (Diffusion's conflation policies)."""

    OFF = "off"
    CONFLATE = "conflate"
    ALWAYS = "always"
    UNSUBSCRIBE = "unsubscribe"


CONFLATING = (QueuePolicy.CONFLATE, QueuePolicy.ALWAYS)
"""Policies by which newer messages may replace those queued for a slow reader."""


class Priority(StrEnum):
    """Which of a session's topics is sent first when it has a backlog."""

    LOW = "low"
    DEFAULT = "default"
    HIGH = "high"


class Kind(StrEnum):
    """The type of a topic's messages; a series is an event log and never conflated."""

    JSON = "json"
    TEXT = "text"
    BINARY = "binary"
    SERIES = "series"


@dataclass(frozen=True, slots=True)
class History:
    """The bounds of a journal: `messages_max`, and `bytes_max` and `age_ms` if given."""

    messages_max: int
    bytes_max: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """A topic as the engine needs it.

    Attributes:
        history: the bounds of its journal.
        key_spec: the fields that name a record. Empty: the topic keeps no records by key.
        unkept_key: the conflation key of intervals and queues if no records are kept.
        policy: the effect of a full queue.
        kind: the type of its messages.
        retains: True: it keeps records; without a key, the newest message is the one record.
        values_only: True: subscriptions are never sent deltas.
        merge: how queued messages merge; as `match` and `replaces`, the default of intervals, too.
        match: the fields or the function that say which queued messages a new one replaces.
        replaces: `placement=replace`: a newer message takes the place of the older one in a queue.
        expiration_ns: a record that is not published again for so long is removed.
        priority: which of a session's topics is sent first.
        tidies: `tidy_on_unsubscribe`: a subscription's queued messages are dropped with it.
    """

    history: History
    key_spec: KeySpec = field(default_factory=KeySpec)
    unkept_key: KeySpec = field(default_factory=KeySpec, kw_only=True)
    policy: QueuePolicy = QueuePolicy.CONFLATE
    kind: Kind = Kind.JSON
    retains: bool = False
    values_only: bool = False
    merge: Reduce | Merger | None = None
    match: KeySpec | Matcher | None = None
    replaces: bool = False
    expiration_ns: int | None = None
    priority: Priority = Priority.DEFAULT
    tidies: bool = False

    @property
    def has_fields(self) -> bool:
        """True if messages are JSON, whose fields filters, keys and reducers read."""
        return self.kind in (Kind.JSON, Kind.SERIES)

    @property
    def keeps_records(self) -> bool:
        """True if the topic has a state of the world."""
        return bool(self.key_spec) or self.retains

    @property
    def conflation_key(self) -> KeySpec:
        """The conflation key of an interval whose request names none."""
        return self.key_spec or self.unkept_key


def effective_lane(
    subscription: Subscription, definition: Definition, *, conflated: bool
) -> LaneId:
    """Return the lane of a subscription; with the policy ALWAYS, a conflating one of interval 0.

    `conflated`: False: the session has queue policies disabled, and gets every message.
    """
    lane_id = subscription.lane_id
    # An interval conflates anyway; the policy is for subscriptions to every message.
    if lane_id.interval_ns or not conflated or definition.policy is not QueuePolicy.ALWAYS:
        return lane_id
    return replace(queue_rules(lane_id, definition), always=True, counted=subscription.counted)


def queue_rules(lane_id: LaneId, definition: Definition) -> LaneId:
    """Return the rules by which the queue of a lane is conflated: those of its topic."""
    # Rows of windows and groups are made of records, not of messages that could be merged.
    if lane_id.feed.shape is not None:
        return lane_id
    # Deltas are composed; they are neither merged nor matched.
    if lane_id.delta:
        return replace(lane_id, replaces=definition.replaces)
    return replace(
        lane_id,
        merge=merge_of(definition),
        match=match_of(definition, lane_id.feed.key_spec),
        replaces=definition.replaces,
    )


def merge_of(definition: Definition) -> Reduce | Merger | None:
    """Return the topic's reducers or merger; None if the newest message is kept."""
    merge = definition.merge
    # Plain reducers keep the last message, as the board does.
    return None if isinstance(merge, Reduce) and merge.is_plain else merge


def match_of(definition: Definition, key_spec: KeySpec) -> KeySpec | Matcher | None:
    """Return the topic's `match`; None if the key already implies it."""
    match = definition.match
    # Queues of a topic that keeps no records have no key, so `match` says which messages are alike.
    if match is None and definition.unkept_key:
        match = definition.unkept_key
    if isinstance(match, KeySpec) and set(match.paths) <= set(key_spec.paths):
        return None
    return match
