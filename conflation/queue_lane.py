"""Queue lanes: what a topic's queue policy makes of a subscription that asks for every message."""

from __future__ import annotations

from dataclasses import replace

from conflation.definition import Definition, QueuePolicy
from conflation.lane_id import LaneId
from conflation.subscription import Subscription
from keys.merging import Matcher, Merger
from keys.reducers import Reduce
from keys.spec import KeySpec


def seated_lane(subscription: Subscription, definition: Definition, *, conflated: bool) -> LaneId:
    """The lane that a subscription is in: on a topic that always conflates, at once.

    A session that is not `conflated` gets every message there too.
    """
    lane_id = subscription.lane_id
    if lane_id.interval_ns or not conflated or definition.policy is not QueuePolicy.ALWAYS:
        return lane_id
    return replace(queue_rules(lane_id, definition), always=True, counted=subscription.counted)


def queue_rules(lane_id: LaneId, definition: Definition) -> LaneId:
    """By which rules the queue of such a lane is conflated: the topic's, as intervals have them.

    Deltas tell what records become, so theirs are put together, and nothing is merged or matched.
    """
    if lane_id.feed.shape is not None:
        return lane_id
    if lane_id.delta:
        return replace(lane_id, replaces=definition.replaces)
    return replace(
        lane_id,
        merge=merge_of(definition),
        match=match_of(definition, lane_id.feed.key_spec),
        replaces=definition.replaces,
    )


def merge_of(definition: Definition) -> Reduce | Merger | None:
    """The topic's reducers or merger; None where the newest message is all there is."""
    merge = definition.merge
    return None if isinstance(merge, Reduce) and merge.is_plain else merge


def match_of(definition: Definition, key_spec: KeySpec) -> KeySpec | Matcher | None:
    """The topic's `match`; messages of one key have equal key fields already."""
    match = definition.match
    if isinstance(match, KeySpec) and set(match.paths) <= set(key_spec.paths):
        return None
    return match
