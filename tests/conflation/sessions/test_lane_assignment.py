"""Subscribers join lanes, change them when that is due, and leave them."""

from __future__ import annotations

from tests.support.manual_driver import ManualDriver
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.sessions.session import QueueLimits

LIMITS = QueueLimits(100, 1 << 20)


def lanes(driver: ManualDriver, topic: str = "px") -> int:
    return driver.engine.topic_stats(topic).lanes


def test_a_subscriber_changes_lanes_when_what_is_held_is_due() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.change(name, "conflation=100ms")
    driver.wait("100ms")
    assert driver.received() == ["a1"]
    driver.publish("a2")
    driver.wait("100ms")
    assert driver.received() == ["a2"]


def test_only_subscriptions_of_the_policy_change_lanes() -> None:
    driver = ManualDriver()
    driver.topic(policy="always")
    driver.topic("other")
    driver.session()
    ids = [
        (driver.subscribe(), "px"),
        (driver.subscribe("conflation=1s"), "px"),
        (driver.subscribe(topic="other"), "other"),
    ]

    def lanes() -> list[Lane | None]:
        subscribers = (driver.engine.session("s").subscribers.get(each) for each in ids)
        return [subscriber.lane for subscriber in subscribers if subscriber is not None]

    before = lanes()
    driver.engine.set_session_limits("s", LIMITS, conflated=True)
    assert lanes() == before
    driver.engine.set_session_limits("s", LIMITS, conflated=False)
    after = lanes()
    assert [one is other for one, other in zip(before, after, strict=True)] == [False, True, True]


def test_a_change_that_is_on_its_way_is_not_hurried_by_a_switch() -> None:
    driver = ManualDriver()
    driver.topic(policy="always")
    driver.session()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.change(name, "conflation=none")
    driver.engine.set_session_limits("s", LIMITS, conflated=False)
    driver.flush()
    driver.publish("a2 a3")
    driver.flush()
    assert driver.received() == ["a1", "a2 a3"]


def test_a_query_is_over_with_its_rows() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe(command="sow")
    assert driver.received() == [
        "group of 1", "snapshot: a1", "group ends at e1-1", "goodbye UNSUBSCRIBED",
    ]  # fmt: skip
    assert lanes(driver) == 0


def test_who_leaves_drops_what_was_held_for_it() -> None:
    """CONTRACT 5.1, also what a change has put off."""
    driver = ManualDriver()
    driver.topic()
    driver.session("other")
    name = driver.subscribe("conflation=10s")
    driver.subscribe("conflation=10s", session="other")
    driver.publish("a1 b1")
    driver.change(name, "conflation=2s")
    driver.engine.unsubscribe("s", name)
    driver.wait("10s")
    assert driver.received(session="other") == ["a1 b1"]
    stats = driver.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.dropped) == (4, 2, 2)
