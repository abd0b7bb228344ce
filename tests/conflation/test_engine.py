"""The engine's verbs, as conversations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.rules import rule
from tests.support.world import World, make_frames
from tidegate.conflation.errors import (
    LimitReached,
    SessionUnknown,
    SubscriptionUnknown,
    TopicUnknown,
)
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.outputs import CloseReason, SessionClosed


@rule("queue-2")
def test_a_session_over_its_limit_on_an_off_topic_is_closed() -> None:
    world = World()
    world.topic(policy="off")
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 b1")
    world.say("c1")
    assert world.hears() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    world.say("d1")


def test_sessions_are_closed_in_the_order_in_which_they_joined() -> None:
    world = World()
    world.topic(policy="off")
    names = [f"session-{number}" for number in range(20)]
    for name in names:
        world.session(name, messages_max=1)
        world.subscribe("conflation=none", session=name)
    world.say("a1 a2")
    closed = [event.session for event in world.events() if isinstance(event, SessionClosed)]
    assert closed == names


def test_a_session_that_has_ended_takes_no_subscription() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.engine.close_session("s", CloseReason.SHUTDOWN)
    with pytest.raises(SessionUnknown):
        world.subscribe("conflation=none")
    assert world.hears() == ["goodbye SHUTDOWN"]
    world.say("a1")
    world.flush()


def test_a_session_is_announced_once_until_a_take_finds_nothing() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    world.say("a1")
    world.wait("1s")
    assert world.announced() == ["s"]
    world.say("a2")
    world.wait("1s")
    assert world.announced() == []
    assert world.hears() == ["a2"]
    world.say("a3")
    world.wait("1s")
    assert world.announced() == ["s"]


@rule("session-8")
def test_the_last_subscriptions_end_is_the_sessions() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    world.engine.unsubscribe("s", "sub1")
    assert world.hears() == ["unsubscribed from px: REQUESTED", "goodbye UNSUBSCRIBED"]
    with pytest.raises(SessionUnknown):
        world.take()


def test_a_peer_that_is_gone_leaves_nothing_behind() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    world.say("a1")
    world.engine.close_session("s")
    assert world.events() == [SessionClosed("s", None)]
    assert world.engine.next_deadline() is None
    stats = world.engine.stats()
    assert (stats.sessions, stats.topics[0].lanes, stats.topics[0].dropped) == (0, 0, 1)


def test_what_is_refused_has_no_effect() -> None:
    world = World(sessions_max=1, subscriptions_max=1)
    world.topic()
    world.subscribe("conflation=1s")
    before = world.engine.stats()
    with pytest.raises(LimitReached):
        world.session("t")
    with pytest.raises(LimitReached):
        world.subscribe("conflation=2s")
    with pytest.raises(TopicUnknown):
        world.engine.publish("none", make_frames("a1"), 0)
    with pytest.raises(SubscriptionUnknown):
        world.engine.unsubscribe("s", "none")
    with pytest.raises(SessionUnknown):
        world.engine.close_session("none")
    assert world.engine.stats() == before
    assert world.events() == []


@rule("change-1")
def test_a_move_to_a_longer_interval_keeps_the_earlier_deadline() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    world.say("a1")
    world.wait("600ms")
    world.change(name, "conflation=10s")
    world.wait("399ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["a1"]


@rule("interval-6")
def test_the_same_calls_give_the_same_outputs() -> None:
    def day() -> list[str]:
        world = World()
        world.topic()
        for name in ("x", "y", "z"):
            world.subscribe("conflation=1s", session=name)
        world.say("a1 b1 a2")
        world.wait("2s")
        return [*world.announced(), *world.hears("x"), *world.hears("y"), *world.hears("z")]

    assert day() == day()


def test_publishing_nothing_changes_nothing() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.engine.publish("px", [], 0)
    assert world.engine.next_deadline() is None


# Questions to the engine change nothing, and are answered as of now.


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


# The engine's parts agree on what time it is and which topics there are.


def test_the_clock_never_runs_back() -> None:
    world = World()
    world.engine.advance(5)
    with pytest.raises(AssertionError, match="clock"):
        world.engine.advance(4)


def test_a_topic_is_found_by_its_name() -> None:
    world = World()
    world.topic()
    assert world.engine.topic("px").name == "px"
    with pytest.raises(TopicUnknown):
        world.engine.topic("other")


# What becomes of topics, as those who subscribe hear of it.


def test_a_topic_that_is_defined_again_keeps_its_messages_and_takes_the_new_policy() -> None:
    world = World()
    world.topic()
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 a2")
    world.topic(policy="off", epoch="other")
    world.say("a3")
    assert world.hears() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    assert str(world.engine.topic("px").bookmark(3)) == "e1-3"


def test_a_topic_that_goes_ends_its_subscriptions() -> None:
    world = World()
    world.topic()
    world.topic("other")
    world.subscribe("conflation=1s")
    world.subscribe("conflation=1s", topic="other")
    world.engine.drop_topic("px")
    assert world.hears() == ["unsubscribed from px: REMOVED"]
    world.topic(epoch="e2")
    world.subscribe("conflation=none", resume="e1-0")
    assert world.hears()[0] == "resumed by snapshot, gap None"


def test_a_topic_that_begins_again_is_told_as_a_snapshot() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.say("a1")
    world.hears()
    world.engine.restart_topic("px", "e2", RestoredTopic(), world.now, 0)
    assert world.hears()[0].startswith("resumed by snapshot")
    assert world.engine.topic("px").epoch == "e2"


def test_of_a_topic_that_is_not_there_nothing_becomes() -> None:
    engine = World().engine
    verbs: list[Callable[[], None]] = [
        lambda: engine.drop_topic("px"),
        lambda: engine.restore_topic("px", RestoredTopic(), 0, 0),
        lambda: engine.restart_topic("px", "e2", RestoredTopic(), 0, 0),
        lambda: engine.set_checkpoint("px", 1),
    ]
    for verb in verbs:
        with pytest.raises(TopicUnknown):
            verb()
