"""What is queued for a subscription that ends is sent before its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver
from tests.support.rules import rule


def driver_with(**more: Any) -> tuple[ManualDriver, str]:
    """A session that lasts, with messages queued for a subscription."""
    driver = ManualDriver()
    driver.topic(**more)
    driver.session(messages_max=4, lasts=True)
    name = driver.subscribe()
    driver.publish("a1 b1 a2")
    driver.flush()
    return driver, name


def sums(driver: ManualDriver) -> tuple[int, int, int, int, int]:
    found = driver.engine.topic_stats("px")
    assert found.matched == found.delivered + found.conflated + found.waiting + found.dropped
    return found.matched, found.delivered, found.conflated, found.waiting, found.dropped


@rule("queue-10")
def test_what_is_queued_goes_first() -> None:
    driver, name = driver_with()
    driver.engine.unsubscribe("s", name)
    assert sums(driver) == (3, 0, 0, 3, 0)
    assert driver.received(bytes_max=1) == ["a1", "b1", "a2", "unsubscribed from px: REQUESTED"]
    assert sums(driver) == (3, 3, 0, 0, 0)


@rule("account-2")
def test_a_topic_that_tidies_up_drops_it() -> None:
    driver, name = driver_with(tidies=True)
    driver.engine.unsubscribe("s", name)
    assert driver.received() == ["unsubscribed from px: REQUESTED"]
    assert sums(driver) == (3, 0, 0, 0, 3)
    assert driver.engine.topic_stats("px").dropped_by == (("REQUESTED", 3),)


def test_the_operator_may_end_it_so_too() -> None:
    driver, name = driver_with()
    driver.engine.unsubscribe("s", name, "CONTROL")
    assert driver.received() == ["a1 b1 a2", "unsubscribed from px: CONTROL"]


def test_the_last_queue_is_sent_before_the_goodbye() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe()
    driver.publish("a1")
    driver.flush()
    driver.engine.unsubscribe("s", name)
    assert driver.received() == ["a1", "unsubscribed from px: REQUESTED", "goodbye UNSUBSCRIBED"]


def test_an_interval_is_dropped() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(lasts=True)
    name = driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.wait("1s")
    driver.engine.unsubscribe("s", name)
    assert driver.received() == ["unsubscribed from px: REQUESTED"]


def test_queued_deltas_are_sent_as_values() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(lasts=True)
    name = driver.subscribe(command="sow_and_delta_subscribe")
    driver.take()
    driver.publish("aX1 aX2 aX3")
    driver.flush()
    driver.engine.unsubscribe("s", name)
    assert driver.received() == ["aX1 aX2 aX3", "unsubscribed from px: REQUESTED"]


def test_the_end_of_a_subscription_precedes_one_of_the_same_name() -> None:
    driver, name = driver_with()
    driver.engine.unsubscribe("s", name)
    driver.engine.subscribe("s", name, driver.request(), driver.now, announced=True)
    driver.publish("c1")
    driver.flush()
    assert driver.received(bytes_max=20) == [
        "a1", "b1", "a2", "unsubscribed from px: REQUESTED", "subscribed to px", "c1",
    ]  # fmt: skip


@rule("queue-10")
@pytest.mark.parametrize("how", ["paused", "in its snapshot"])
def test_nothing_more_goes_to_who_is_paused_or_still_in_its_snapshot(how: str) -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.session(lasts=True)
    name = driver.subscribe(command="sow_and_subscribe")
    if how == "paused":
        driver.take()
        driver.change(name, "bookmark=now,pause")
    driver.publish("a2")
    driver.flush()
    driver.engine.unsubscribe("s", name)
    assert driver.received() == ["unsubscribed from px: REQUESTED"]
    assert sums(driver) == (1, 0, 0, 0, 1)


@rule("queue-10")
@pytest.mark.parametrize(
    ("policy", "story"),
    [
        ("conflate", ["b1 a2", "unsubscribed from px: REQUESTED", "c2"]),
        ("unsubscribe", ["unsubscribed from px: REQUESTED", "unsubscribed from px: BACK_PRESSURE"]),
        ("off", ["unsubscribed from px: REQUESTED", "goodbye MESSAGE_QUEUE_LIMIT_REACHED"]),
    ],
)
def test_it_counts_towards_the_limits_and_its_policy_applies(policy: str, story: list[str]) -> None:
    driver, name = driver_with(policy=policy)
    driver.engine.unsubscribe("s", name)
    driver.subscribe()
    driver.publish("c1")
    assert sums(driver)[3] == 4
    driver.publish("c2")
    driver.flush()
    sums(driver)
    assert driver.received() == story
    sums(driver)
