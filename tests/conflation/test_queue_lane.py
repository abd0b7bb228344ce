"""What a queue policy makes of a subscription that asks for every message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.world import World, counts, tokens
from tidegate.conflation.definition import effective_lane, match_of, merge_of, queue_rules
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.interval import IntervalLane
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.outputs import CloseReason, SessionClosed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.merging import Matcher
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

SUM = Reduce.of({"/v": "sum"})


def always(**more: Any) -> World:
    world = World()
    world.topic(policy="always", **more)
    return world


def lane_of(world: World) -> object:
    """The one lane of topic px."""
    lanes = [
        lane for feed in world.engine.topic("px").feeds.values() for lane in feed.lanes.values()
    ]
    (lane,) = lanes
    return lane


def queued(world: World, session: str = "s") -> int:
    return world.engine.session_stats(session).queued_messages


@rule("queue-5")
def test_always_goes_at_once_and_keeps_the_newest_of_each_key() -> None:
    world = always()
    world.subscribe()
    assert isinstance(lane_of(world), IntervalLane)
    world.say("a1 b1 a2")
    assert world.engine.next_deadline() == world.now
    world.flush()
    assert world.hears() == ["b1 a2"]
    world.say("a3")
    world.flush()
    assert world.hears() == ["a3"]


@rule("queue-5")
def test_at_most_the_newest_of_each_key_is_queued_whatever_the_limits() -> None:
    world = always()
    world.session(messages_max=2)
    world.subscribe()
    for number in range(100):
        world.say(f"a{number} b{number}")
        world.flush()
        assert queued(world) == 2
    assert world.hears() == ["a99 b99"]
    stats = world.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.conflated) == (200, 2, 198)
    assert world.engine.stats().reliefs.forced == 0


def test_more_keys_than_may_wait_close_the_session_on_an_always_topic_too() -> None:
    world = always()
    world.session(messages_max=2)
    world.subscribe()
    world.say("a1 b1 a2")
    world.flush()
    world.say("c1")
    closed = [event for event in world.events() if isinstance(event, SessionClosed)]
    assert closed == [SessionClosed("s", CloseReason.QUEUE_LIMIT)]


def test_what_is_taken_in_pieces_moves_on_with_what_comes() -> None:
    world = always()
    world.subscribe()
    world.say("a1 b1 c1")
    world.flush()
    (first,) = world.take_once(1)
    world.say("b2")
    world.flush()
    assert tokens(first.batch.frames) == "a1"  # type: ignore[union-attr]  # rows, as asserted
    assert world.hears() == ["c1", "b2"]


@rule("queue-5", "queue-9")
@pytest.mark.parametrize(
    ("more", "command", "kind", "story"),
    [
        ({"merge": SUM}, "subscribe", StatefulLane, [["b1 a3"]]),
        ({"replaces": True}, "subscribe", StatefulLane, [["a2 b1"]]),
        ({"match": KeySpec.of(["/v"])}, "subscribe", StatefulLane, [["a1 b1 a2"]]),
        ({"merge": SUM}, "delta_subscribe", StatefulLane, [["b1 a2"]]),
        ({"match": KeySpec.of(["/k"])}, "subscribe", IntervalLane, [["b1 a2"]]),
    ],
)
def test_slots_answer_where_a_board_cannot(
    more: dict[str, Any], command: str, kind: type, story: list[list[str]]
) -> None:
    world = always(**more)
    world.subscribe(command=command)
    assert isinstance(lane_of(world), kind)
    world.say("a1 b1 a2")
    world.flush()
    assert [world.hears()] == story


def test_receipts_count_what_was_replaced() -> None:
    world = always()
    world.subscribe("receipt")
    world.say("a1 b1 a2")
    world.flush()
    assert counts(world.take()) == [("b1", 1, 2), ("a2", 2, 1)]


@rule("queue-8")
def test_a_session_that_is_not_conflated_gets_every_message() -> None:
    world = always()
    world.session(conflated=False)
    world.subscribe()
    assert isinstance(lane_of(world), EveryMessageLane)
    world.say("a1 b1 a2")
    world.flush()
    assert world.hears() == ["a1 b1 a2"]


@rule("queue-8")
def test_a_session_may_be_switched_and_keeps_what_is_queued() -> None:
    world = always()
    world.session()
    world.subscribe()
    limits = QueueLimits(1_000, 1 << 30)
    world.say("a1 a2")
    world.flush()
    world.engine.set_session_limits("s", limits, conflated=False)
    world.say("a3 a4")
    world.flush()
    assert world.hears() == ["a2", "a3 a4"]
    world.say("a5 a6 b1")
    world.engine.set_session_limits("s", limits, conflated=True)
    world.flush()
    assert world.hears() == ["a6 b1"]


@rule("queue-8")
def test_a_topic_may_get_another_policy_and_keeps_what_is_queued() -> None:
    world = World()
    world.topic(policy="off")
    world.subscribe()
    world.say("a1 a2 b1")
    world.topic(policy="always")
    world.say("a3")
    world.flush()
    assert world.hears() == ["b1 a3"]
    world.topic(policy="off")
    world.say("a4 a5")
    world.flush()
    assert world.hears() == ["a4 a5"]


def test_an_interval_is_the_subscribers_wish_whatever_the_policy() -> None:
    world = always()
    for conflated in (True, False):
        wish = world.wish("conflation=1s")
        definition = world.engine.topic("px").definition
        assert effective_lane(wish, definition, conflated=conflated) == wish.lane_id


def test_plain_rules_are_no_rules() -> None:
    world = always(merge=Reduce.of({"/v": "last"}), match=KeySpec.of(["/k"]))
    definition = world.engine.topic("px").definition
    lane_id = world.wish().lane_id
    assert merge_of(definition) is None
    assert match_of(definition, lane_id.feed.key_spec) is None
    assert queue_rules(lane_id, definition) == lane_id


def test_rows_of_windows_and_groups_are_no_messages_to_merge() -> None:
    world = always(merge=SUM, match=Matcher("m", lambda current, new: False), replaces=True)
    definition = world.engine.topic("px").definition
    window = world.wish("top_n=2", command="sow_and_subscribe").lane_id
    assert queue_rules(window, definition) == window
