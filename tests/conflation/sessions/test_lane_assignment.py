"""Subscribers join lanes, change them when that is due, and leave them."""

from __future__ import annotations

from tests.support.world import World
from tidegate.conflation.sessions.session import QueueLimits

LIMITS = QueueLimits(100, 1 << 20)


def lanes(world: World, topic: str = "px") -> int:
    return world.engine.topic_stats(topic).lanes


def test_a_subscriber_changes_lanes_when_what_is_held_is_due() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    world.say("a1")
    world.change(name, "conflation=100ms")
    world.wait("100ms")
    assert world.hears() == ["a1"]
    world.say("a2")
    world.wait("100ms")
    assert world.hears() == ["a2"]


def test_only_who_must_change_lanes_does() -> None:
    world = World()
    world.topic(policy="always")
    world.topic("other")
    world.session()
    world.subscribe()
    world.subscribe("conflation=1s")
    world.subscribe(topic="other")
    before = [
        subscriber.lane for subscriber in world.engine._registry.find("s").subscribers.values()
    ]
    world.engine.set_session_limits("s", LIMITS, conflated=True)
    assert [
        subscriber.lane for subscriber in world.engine._registry.find("s").subscribers.values()
    ] == before
    world.engine.set_session_limits("s", LIMITS, conflated=False)
    after = [
        subscriber.lane for subscriber in world.engine._registry.find("s").subscribers.values()
    ]
    assert [one is other for one, other in zip(before, after, strict=True)] == [False, True, True]


def test_a_change_that_is_on_its_way_is_not_hurried_by_a_switch() -> None:
    world = World()
    world.topic(policy="always")
    world.session()
    name = world.subscribe("conflation=1s")
    world.say("a1")
    world.change(name, "conflation=none")
    world.engine.set_session_limits("s", LIMITS, conflated=False)
    world.flush()
    world.say("a2 a3")
    world.flush()
    assert world.hears() == ["a1", "a2 a3"]


def test_a_query_is_over_with_its_rows() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe(command="sow")
    assert world.hears() == [
        "group of 1", "snapshot: a1", "group ends at e1-1", "goodbye UNSUBSCRIBED",
    ]  # fmt: skip
    assert lanes(world) == 0


def test_who_leaves_drops_what_was_held_for_it() -> None:
    """CONTRACT 5.1, also what a change has put off."""
    world = World()
    world.topic()
    world.session("other")
    name = world.subscribe("conflation=10s")
    world.subscribe("conflation=10s", session="other")
    world.say("a1 b1")
    world.change(name, "conflation=2s")
    world.engine.unsubscribe("s", name)
    world.wait("10s")
    assert world.hears(session="other") == ["a1 b1"]
    stats = world.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.dropped) == (4, 2, 2)
