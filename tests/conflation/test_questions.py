"""Questions to the engine change nothing, and are answered as of now."""

from __future__ import annotations

import pytest

from tests.support.world import World
from tidegate.conflation.errors import SessionUnknown, TopicUnknown


def test_ends_that_were_not_taken_are_known() -> None:
    world = World()
    world.topic()
    one, two = world.subscribe("conflation=1s"), world.subscribe("conflation=1s")
    world.engine.unsubscribe("s", one)
    assert [told.name for told in world.engine.undelivered("s")] == [one]
    assert world.engine.subscriber("s", (one, "px")) is None
    subscriber = world.engine.subscriber("s", (two, "px"))
    assert subscriber is not None
    assert not subscriber.is_changing
    world.take()
    assert world.engine.undelivered("s") == []


def test_who_is_asked_about_must_be_there() -> None:
    world = World()
    for ask in (world.engine.undelivered, world.engine.caught_up, world.engine.session_stats):
        with pytest.raises(SessionUnknown):
            ask("nobody")
    for about in (world.engine.over_half_full, world.engine.topic_stats):
        with pytest.raises(TopicUnknown):
            about("nothing")


def test_asking_changes_nothing() -> None:
    world = World()
    world.topic()
    world.session(messages_max=4)
    name = world.subscribe("conflation=none")
    world.say("a1 b1 a2")

    def told() -> tuple[object, ...]:
        engine = world.engine
        return (
            engine.stats(),
            engine.topic_stats("px"),
            engine.session_stats("s"),
            engine.over_half_full("px"),
            engine.limits_at("px", ["s"]),
            engine.caught_up("s"),
            engine.has_long_queues,
            engine.next_deadline(),
        )

    assert told() == told()
    assert world.engine.over_half_full("px") == {"s"}
    assert [limits.messages_max for limits in world.engine.limits_at("px", ["s"])] == [4]
    assert world.engine.stats([]).topics == ()
    world.flush()
    assert world.hears() == ["a1 b1 a2"]
    [((found, topic), place)] = world.engine.caught_up("s")
    assert (found, topic, place.offset) == (name, "px", 3)
