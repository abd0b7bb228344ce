"""The methods of the engine, in sequences of calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.manual_driver import ManualDriver, make_frames
from tests.support.rules import rule
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
    driver = ManualDriver()
    driver.topic(policy="off")
    driver.session(messages_max=2)
    driver.subscribe("conflation=none")
    driver.publish("a1 b1")
    driver.publish("c1")
    assert driver.received() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    driver.publish("d1")


def test_sessions_are_closed_in_the_order_in_which_they_joined() -> None:
    driver = ManualDriver()
    driver.topic(policy="off")
    names = [f"session-{number}" for number in range(20)]
    for name in names:
        driver.session(name, messages_max=1)
        driver.subscribe("conflation=none", session=name)
    driver.publish("a1 a2")
    closed = [event.session for event in driver.announcements() if isinstance(event, SessionClosed)]
    assert closed == names


def test_a_session_that_has_ended_takes_no_subscription() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.engine.close_session("s", CloseReason.SHUTDOWN)
    with pytest.raises(SessionUnknown):
        driver.subscribe("conflation=none")
    assert driver.received() == ["goodbye SHUTDOWN"]
    driver.publish("a1")
    driver.flush()


def test_a_session_is_announced_once_until_a_take_finds_nothing() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.wait("1s")
    assert driver.announced() == ["s"]
    driver.publish("a2")
    driver.wait("1s")
    assert driver.announced() == []
    assert driver.received() == ["a2"]
    driver.publish("a3")
    driver.wait("1s")
    assert driver.announced() == ["s"]


@rule("session-8")
def test_the_end_of_the_last_subscription_ends_the_session() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.engine.unsubscribe("s", "sub1")
    assert driver.received() == ["unsubscribed from px: REQUESTED", "goodbye UNSUBSCRIBED"]
    with pytest.raises(SessionUnknown):
        driver.take()


def test_a_closed_session_leaves_nothing_behind() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.engine.close_session("s")
    assert driver.announcements() == [SessionClosed("s", None)]
    assert driver.engine.next_deadline() is None
    stats = driver.engine.stats()
    assert (stats.sessions, stats.topics[0].lanes, stats.topics[0].dropped) == (0, 0, 1)


def test_a_refused_call_has_no_effect() -> None:
    driver = ManualDriver(sessions_max=1, subscriptions_max=1)
    driver.topic()
    driver.subscribe("conflation=1s")
    before = driver.engine.stats()
    with pytest.raises(LimitReached):
        driver.session("t")
    with pytest.raises(LimitReached):
        driver.subscribe("conflation=2s")
    with pytest.raises(TopicUnknown):
        driver.engine.publish("none", make_frames("a1"), 0)
    with pytest.raises(SubscriptionUnknown):
        driver.engine.unsubscribe("s", "none")
    with pytest.raises(SessionUnknown):
        driver.engine.close_session("none")
    assert driver.engine.stats() == before
    assert driver.announcements() == []


@rule("change-1")
def test_a_move_to_a_longer_interval_keeps_the_earlier_deadline() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.wait("600ms")
    driver.change(name, "conflation=10s")
    driver.wait("399ms")
    assert driver.received() == []
    driver.wait("1ms")
    assert driver.received() == ["a1"]


@rule("interval-6")
def test_the_same_calls_give_the_same_outputs() -> None:
    def outputs() -> list[str]:
        driver = ManualDriver()
        driver.topic()
        for name in ("x", "y", "z"):
            driver.subscribe("conflation=1s", session=name)
        driver.publish("a1 b1 a2")
        driver.wait("2s")
        return [
            *driver.announced(),
            *driver.received("x"),
            *driver.received("y"),
            *driver.received("z"),
        ]

    assert outputs() == outputs()


def test_publishing_nothing_changes_nothing() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.engine.publish("px", [], 0)
    assert driver.engine.next_deadline() is None


# Queries of the engine change nothing, and are answered as of now.


def test_endings_are_known_until_they_are_sent() -> None:
    driver = ManualDriver()
    driver.topic()
    one, two = driver.subscribe("conflation=1s"), driver.subscribe("conflation=1s")
    driver.engine.unsubscribe("s", one)
    assert [ending.name for ending in driver.engine.session("s").unsent_endings()] == [one]
    assert driver.engine.session("s").subscribers.get((one, "px")) is None
    subscriber = driver.engine.session("s").subscribers.get((two, "px"))
    assert subscriber is not None
    assert not subscriber.is_changing
    driver.take()
    assert driver.engine.session("s").unsent_endings() == []


def test_a_query_names_a_session_or_a_topic_that_exists() -> None:
    driver = ManualDriver()
    for query_session in (driver.engine.session, driver.engine.session_stats):
        with pytest.raises(SessionUnknown):
            query_session("unknown")
    for query_topic in (driver.engine.over_half_full, driver.engine.topic_stats):
        with pytest.raises(TopicUnknown):
            query_topic("unknown")


def test_a_query_changes_nothing() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=4)
    name = driver.subscribe("conflation=none")
    driver.publish("a1 b1 a2")

    def answers() -> tuple[object, ...]:
        engine = driver.engine
        return (
            engine.stats(),
            engine.topic_stats("px"),
            engine.session_stats("s"),
            engine.over_half_full("px"),
            engine.limits_at("px", ["s"]),
            engine.session("s").caught_up(),
            engine.has_long_queues,
            engine.next_deadline(),
        )

    assert answers() == answers()
    assert driver.engine.over_half_full("px") == {"s"}
    assert [limits.messages_max for limits in driver.engine.limits_at("px", ["s"])] == [4]
    assert driver.engine.stats([]).topics == ()
    driver.flush()
    assert driver.received() == ["a1 b1 a2"]
    [((found, topic), place)] = driver.engine.session("s").caught_up()
    assert (found, topic, place.offset) == (name, "px", 3)


# The parts of the engine agree on the time and on the topics that exist.


def test_the_clock_never_runs_back() -> None:
    driver = ManualDriver()
    driver.engine.advance(5)
    with pytest.raises(AssertionError, match="clock"):
        driver.engine.advance(4)


def test_a_topic_is_found_by_its_name() -> None:
    driver = ManualDriver()
    driver.topic()
    assert driver.engine.topic("px").name == "px"
    with pytest.raises(TopicUnknown):
        driver.engine.topic("other")


# What subscribers receive when a topic is redefined, dropped or restarted.


def test_a_redefined_topic_keeps_its_messages_and_has_the_new_policy() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=2)
    driver.subscribe("conflation=none")
    driver.publish("a1 a2")
    driver.topic(policy="off", epoch="other")
    driver.publish("a3")
    assert driver.received() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    assert str(driver.engine.topic("px").bookmark(3)) == "e1-3"


def test_a_dropped_topic_ends_its_subscriptions() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.topic("other")
    driver.subscribe("conflation=1s")
    driver.subscribe("conflation=1s", topic="other")
    driver.engine.drop_topic("px")
    assert driver.received() == ["unsubscribed from px: REMOVED"]
    driver.topic(epoch="e2")
    driver.subscribe("conflation=none", resume="e1-0")
    assert driver.received()[0] == "resumed by snapshot, gap None"


def test_a_restarted_topic_sends_a_snapshot() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.publish("a1")
    driver.received()
    driver.engine.restart_topic("px", "e2", RestoredTopic(), driver.now, 0)
    assert driver.received()[0].startswith("resumed by snapshot")
    assert driver.engine.topic("px").epoch == "e2"


def test_an_unknown_topic_cannot_be_changed() -> None:
    engine = ManualDriver().engine
    calls: list[Callable[[], object]] = [
        lambda: engine.drop_topic("px"),
        lambda: engine.restore_topic("px", RestoredTopic(), 0, 0),
        lambda: engine.restart_topic("px", "e2", RestoredTopic(), 0, 0),
        lambda: engine.set_checkpoint("px", 1),
    ]
    for call in calls:
        with pytest.raises(TopicUnknown):
            call()
