"""The engine's verbs, as conversations."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World, make_frames
from tidegate.conflation.errors import (
    LimitReached,
    SessionUnknown,
    SubscriptionUnknown,
    TopicUnknown,
)
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
