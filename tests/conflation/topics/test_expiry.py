"""Expiry: by publication, not record by record."""

from __future__ import annotations

from tests.support.manual_driver import ManualDriver
from tests.support.rules import rule
from tidegate.conflation.outputs import RecordsExpired
from tidegate.conflation.topics.expiry_deadlines import ExpiryDeadlines


def test_deadlines_come_in_the_order_of_publication() -> None:
    expiry = ExpiryDeadlines()
    expiry.schedule(3, 100)
    expiry.schedule(5, 200)
    assert [expiry.expired(now) for now in (99, 100, 150, 500)] == [0, 3, 0, 5]


def test_the_next_deadline_is_that_of_the_oldest_that_is_left() -> None:
    expiry = ExpiryDeadlines()
    expiry.schedule(3, 100)
    expiry.schedule(5, 200)
    expiry.expired(100)
    assert expiry.deadline == 200


@rule("topic-7")
def test_a_shorter_time_is_for_all_that_was_published_before() -> None:
    expiry = ExpiryDeadlines()
    expiry.schedule(3, 100)
    expiry.schedule(5, 900)
    expiry.schedule(6, 200)
    assert expiry.deadline == 100
    assert [expiry.expired(now) for now in (100, 199, 200)] == [3, 0, 6]
    assert expiry.deadline is None


def test_nothing_expires_any_more_once_it_is_forgotten() -> None:
    expiry = ExpiryDeadlines()
    expiry.schedule(3, 100)
    expiry.forget()
    assert (expiry.deadline, expiry.expired(1_000)) == (None, 0)


def expired(driver: ManualDriver) -> list[int]:
    return [event.through for event in driver.announcements() if isinstance(event, RecordsExpired)]


@rule("removal-3")
def test_records_are_announced_when_they_were_not_published_again() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    driver.publish("a1 b1")
    driver.wait("6s")
    driver.publish("a2")
    driver.wait("3999ms")
    assert expired(driver) == []
    driver.wait("1ms")
    assert expired(driver) == [2]
    driver.remove("b1")
    driver.wait("6s")
    assert expired(driver) == [3]


def test_who_published_everything_again_hears_nothing() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    driver.publish("a1")
    driver.wait("5s")
    driver.publish("a2")
    driver.wait("9s")
    assert expired(driver) == []


def test_records_no_longer_expire_once_the_topic_has_no_expiration() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    driver.publish("a1")
    driver.topic()
    driver.wait("20s")
    assert expired(driver) == []


def test_records_published_before_expire_when_they_were_to() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    driver.publish("a1")
    driver.topic(expiration="60s")
    driver.wait("10s")
    assert expired(driver) == [1]
