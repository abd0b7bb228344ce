"""Subscribers join lanes, change them when that is due, and leave them."""

from __future__ import annotations

import pytest

from tests.support.calls import counted
from tests.support.manual_driver import ManualDriver
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.outputs import Unsubscribed
from tidegate.conflation.sessions.lane_assignment import SESSION_COST, LaneAssignment
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.topics.recorded import Recording

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


def crowded(policy: str = "off") -> ManualDriver:
    """A topic with ten sessions, of which a step concerns one."""
    made = ManualDriver(items_at_once=SESSION_COST)
    made.topic(policy=policy)
    for number in range(10):
        made.subscribe(session=f"s{number}")
    return made


def steps_of(made: ManualDriver, calls: list[int]) -> list[int]:
    """Do all steps; return the calls of a method in each."""
    found = []
    while made.engine.has_openings:
        calls[0] = 0
        made.engine.open_step(made.now)
        found.append(calls[0])
    return found


def test_a_topic_of_many_sessions_ends_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = crowded()
    calls = counted(monkeypatch, SessionRegistry, "end_subscriber")
    made.engine.drop_topic("px")
    assert calls == [0]
    with pytest.raises(TopicUnknown):
        made.engine.topic("px")
    assert max(steps_of(made, calls)) == 1
    for number in range(10):
        ends = [out for out in made.engine.take(f"s{number}", 99) if isinstance(out, Unsubscribed)]
        assert [end.reason for end in ends] == ["REMOVED"]


def test_a_topic_that_is_made_anew_ends_its_predecessor_first() -> None:
    made = crowded()
    made.engine.drop_topic("px")
    made.engine.open_step(made.now)
    made.topic()
    assert made.engine.topic_stats("px").subscriptions == 0
    made.subscribe(session="s10")
    while made.engine.has_openings:
        made.engine.open_step(made.now)
    assert made.engine.topic_stats("px").subscriptions == 1


def test_a_policy_moves_many_queues_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = crowded()
    calls = counted(monkeypatch, LaneAssignment, "change")
    made.topic(policy="always")
    assert calls == [0]
    assert [found for found in steps_of(made, calls) if found] == [1] * 10
    topic = made.engine.topic("px")
    [lane] = [lane for feed in topic.feeds.values() for lane in feed.lanes.values()]
    assert lane.id.always
    assert len(lane.members) == 10


def test_many_readers_of_a_journal_begin_without_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step takes the cut: after a restart many clients begin in one iteration."""
    made = ManualDriver(items_at_once=2)
    made.topic()
    for number in range(10):
        made.publish(f"a{number} b{number}")
    calls = counted(monkeypatch, Recording, "play")
    for number in range(5):
        options = "bookmark=epoch,conflation=1s,conflation_key=[/v]"
        made.subscribe(options, session=f"s{number}")
    assert calls == [0]
    assert max(steps_of(made, calls)) == 1
