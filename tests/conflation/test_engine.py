"""The engine's verbs, as conversations."""

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
def test_the_last_subscriptions_end_is_the_sessions() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.engine.unsubscribe("s", "sub1")
    assert driver.received() == ["unsubscribed from px: REQUESTED", "goodbye UNSUBSCRIBED"]
    with pytest.raises(SessionUnknown):
        driver.take()


def test_a_peer_that_is_gone_leaves_nothing_behind() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.engine.close_session("s")
    assert driver.announcements() == [SessionClosed("s", None)]
    assert driver.engine.next_deadline() is None
    stats = driver.engine.stats()
    assert (stats.sessions, stats.topics[0].lanes, stats.topics[0].dropped) == (0, 0, 1)


def test_what_is_refused_has_no_effect() -> None:
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
    def day() -> list[str]:
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

    assert day() == day()


def test_publishing_nothing_changes_nothing() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.engine.publish("px", [], 0)
    assert driver.engine.next_deadline() is None


# Questions to the engine change nothing, and are answered as of now.


def test_ends_that_were_not_taken_are_known() -> None:
    driver = ManualDriver()
    driver.topic()
    one, two = driver.subscribe("conflation=1s"), driver.subscribe("conflation=1s")
    driver.engine.unsubscribe("s", one)
    assert [told.name for told in driver.engine.session("s").unsent_endings()] == [one]
    assert driver.engine.session("s").subscribers.get((one, "px")) is None
    subscriber = driver.engine.session("s").subscribers.get((two, "px"))
    assert subscriber is not None
    assert not subscriber.is_changing
    driver.take()
    assert driver.engine.session("s").unsent_endings() == []


def test_who_is_asked_about_must_be_there() -> None:
    driver = ManualDriver()
    for ask in (driver.engine.session, driver.engine.session_stats):
        with pytest.raises(SessionUnknown):
            ask("nobody")
    for about in (driver.engine.over_half_full, driver.engine.topic_stats):
        with pytest.raises(TopicUnknown):
            about("nothing")


def test_asking_changes_nothing() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=4)
    name = driver.subscribe("conflation=none")
    driver.publish("a1 b1 a2")

    def told() -> tuple[object, ...]:
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

    assert told() == told()
    assert driver.engine.over_half_full("px") == {"s"}
    assert [limits.messages_max for limits in driver.engine.limits_at("px", ["s"])] == [4]
    assert driver.engine.stats([]).topics == ()
    driver.flush()
    assert driver.received() == ["a1 b1 a2"]
    [((found, topic), place)] = driver.engine.session("s").caught_up()
    assert (found, topic, place.offset) == (name, "px", 3)


# The engine's parts agree on what time it is and which topics there are.


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


# What becomes of topics, as those who subscribe hear of it.


def test_a_topic_that_is_defined_again_keeps_its_messages_and_takes_the_new_policy() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=2)
    driver.subscribe("conflation=none")
    driver.publish("a1 a2")
    driver.topic(policy="off", epoch="other")
    driver.publish("a3")
    assert driver.received() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    assert str(driver.engine.topic("px").bookmark(3)) == "e1-3"


def test_a_topic_that_goes_ends_its_subscriptions() -> None:
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


def test_a_topic_that_begins_again_sends_a_snapshot() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.publish("a1")
    driver.received()
    driver.engine.restart_topic("px", "e2", RestoredTopic(), driver.now, 0)
    assert driver.received()[0].startswith("resumed by snapshot")
    assert driver.engine.topic("px").epoch == "e2"


def test_of_a_topic_that_is_not_there_nothing_becomes() -> None:
    engine = ManualDriver().engine
    verbs: list[Callable[[], object]] = [
        lambda: engine.drop_topic("px"),
        lambda: engine.restore_topic("px", RestoredTopic(), 0, 0),
        lambda: engine.restart_topic("px", "e2", RestoredTopic(), 0, 0),
        lambda: engine.set_checkpoint("px", 1),
    ]
    for verb in verbs:
        with pytest.raises(TopicUnknown):
            verb()
