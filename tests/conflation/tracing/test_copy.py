"""A copy starts in the state of its original, and is independent of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.manual_driver import ManualDriver, tokens
from tests.support.rules import rule
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.tracing.recorder import copy_of

OPTIONS = (
    "",
    "conflation=100ms,oof",
    "conflation=100ms,pace=key",
    "conflation=100ms,reduce=[/v:sum]",
)


def subscriber_of(driver: ManualDriver, name: str) -> Subscriber:
    subscriber = driver.engine.session("s").subscribers.get((name, "px"))
    assert subscriber is not None
    return subscriber


def pending(subscriber: Subscriber) -> str:
    assert subscriber.lane is not None
    return tokens(row for _, row in subscriber.lane.pending(subscriber.member))


@rule("trace-2")
@pytest.mark.parametrize("options", OPTIONS)
def test_it_has_what_its_original_has(options: str) -> None:
    """Board, lane, deadline, position."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(options, command="sow_and_subscribe")
    driver.publish("a1 b1")
    driver.flush()
    driver.publish("a2 c1")
    subscriber = subscriber_of(driver, name)
    twin = copy_of(subscriber)
    assert pending(twin) == pending(subscriber) != ""
    assert twin.lane is not None
    assert twin.lane is not subscriber.lane
    assert (twin.lane.id, twin.lane.deadline) == (subscriber.lane.id, subscriber.lane.deadline)  # type: ignore[union-attr]  # it has one
    assert list(twin.lane.members.values()) == [twin.member]
    assert (twin.topic.head, len(twin.topic.journal)) == (4, 4)


@rule("trace-2")
@pytest.mark.parametrize("options", OPTIONS)
def test_neither_sees_what_becomes_of_the_other(options: str) -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(options, command="sow_and_subscribe")
    driver.take()
    driver.publish("a1")
    subscriber = subscriber_of(driver, name)
    twin = copy_of(subscriber)
    before = pending(twin)
    driver.publish("b1 a2")
    assert pending(twin) == before
    driver.wait("1s")
    driver.take()
    assert pending(twin) == before
    assert pending(subscriber) == ""
    assert twin.member.position < subscriber.member.position


@rule("trace-2")
def test_its_neighbours_are_not_copied() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms,pace=key")
    for number in range(50):
        driver.subscribe("conflation=100ms,pace=key", session=f"other{number}")
    twin = copy_of(subscriber_of(driver, name))
    assert twin.lane is not None
    assert len(twin.lane.members) == 1
    assert twin.watchers == ()


def test_frames_are_shared() -> None:
    """What never changes is not copied."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms,pace=key")
    driver.publish("a1")
    subscriber = subscriber_of(driver, name)
    twin = copy_of(subscriber)
    assert twin.topic.journal.last is subscriber.topic.journal.last
    assert twin.topic.sow is not None
    assert subscriber.topic.sow is not None
    assert twin.topic.sow.board.live()[0] is subscriber.topic.sow.board.live()[0]


@rule("trace-2")
def test_an_opening_goes_on_where_it_stood() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1 c1")
    name = driver.subscribe(command="sow_and_subscribe")
    driver.take_once(1)
    twin = copy_of(subscriber_of(driver, name))
    driver.take()
    assert twin.backfill is not None
    assert (twin.backfill.sent, twin.backfill.is_done) == (1, False)


@rule("trace-2")
@pytest.mark.parametrize("options", [*OPTIONS, "conflation=none", "conflation=100ms,select=[-/w]"])
def test_a_lane_holds_no_iterator(options: str) -> None:
    """Since Python 3.14 the iterators of `itertools` cannot be copied."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(options)
    driver.publish("a1 b1")
    lane = subscriber_of(driver, name).lane
    assert lane is not None
    lane.prepare(1)
    held = [each for each, value in vars(lane).items() if isinstance(value, Iterator)]
    assert held == []
