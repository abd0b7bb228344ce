"""What a recorder keeps of the calls around a subscriber."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver
from tests.support.rules import rule
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.tracing.recorder import (
    OVERRUN,
    RECORDERS_MAX,
    Advanced,
    Copied,
    Ended,
    Joined,
    Published,
    Taken,
    TraceRecorder,
    begin_recording,
    end_recording,
)


def subscribed(
    options: str = "conflation=100ms", session: str = "s"
) -> tuple[ManualDriver, Subscriber]:
    driver = ManualDriver()
    driver.topic()
    driver.topic("other")
    name = driver.subscribe(options, session=session)
    subscriber = driver.engine.session(session).subscribers.get((name, "px"))
    assert subscriber is not None
    return driver, subscriber


def kinds(recorder: TraceRecorder) -> list[str]:
    return [type(call).__name__ for call in recorder.take_calls()]


@rule("trace-1")
def test_only_what_touches_the_subscriber_is_kept() -> None:
    driver, subscriber = subscribed()
    recorder = begin_recording(driver.engine.watchers, subscriber, driver.now, lambda: None)
    driver.publish("a1", topic="other")
    driver.wait("1s")
    driver.take()
    assert kinds(recorder) == ["Copied"]
    driver.publish("a1")
    driver.wait("1s")
    driver.take()
    assert kinds(recorder) == ["Published", "Advanced", "Taken"]


@rule("trace-5")
def test_frames_are_shared_and_not_copied() -> None:
    """What is kept are references."""
    driver, subscriber = subscribed()
    recorder = begin_recording(driver.engine.watchers, subscriber, driver.now, lambda: None)
    driver.publish("a1")
    _, published = recorder.take_calls()
    assert isinstance(published, Published)
    assert published.frames[0] is driver.engine.topic("px").journal.last


def test_whoever_reads_is_woken() -> None:
    driver, subscriber = subscribed()
    woken: list[int] = []
    begin_recording(
        driver.engine.watchers, subscriber, driver.now, lambda: woken.append(driver.now)
    )
    driver.publish("a1")
    driver.wait("100ms")
    assert woken == [0, 0, 100_000_000]


@rule("trace-1")
def test_a_join_is_noticed_with_the_next_call() -> None:
    driver, subscriber = subscribed("conflation=100ms,pace=key")
    recorder = begin_recording(driver.engine.watchers, subscriber, driver.now, lambda: None)
    driver.subscribe("conflation=100ms,pace=key", session="other")
    driver.publish("a1")
    assert kinds(recorder) == ["Copied", "Joined", "Published"]


@rule("trace-5")
def test_what_is_kept_is_bounded_in_bytes_as_in_messages() -> None:
    for bounds in ({"messages_max": 2}, {"bytes_max": 20}):
        driver, subscriber = subscribed()
        recorder = TraceRecorder(subscriber, driver.now, **bounds)  # type: ignore[arg-type]  # one of two bounds
        topic = driver.engine.topic("px")
        driver.publish("a1")
        recorder.published(topic, topic.journal.after(0), 1)
        driver.publish("a2")
        recorder.published(topic, topic.journal.after(1), 2)
        recorder.published(topic, topic.journal.after(1), 3)
        assert recorder.is_over
        assert recorder.take_calls() == [Ended(2, OVERRUN)]


@rule("trace-5")
def test_what_was_read_does_not_count() -> None:
    driver, subscriber = subscribed()
    recorder = TraceRecorder(subscriber, driver.now, messages_max=2)
    topic = driver.engine.topic("px")
    driver.publish("a1")
    for _ in range(5):
        recorder.published(topic, topic.journal.after(0), 1)
        recorder.take_calls()
    assert not recorder.is_over


def test_times_are_those_of_the_calls() -> None:
    driver, subscriber = subscribed()
    recorder = begin_recording(driver.engine.watchers, subscriber, driver.now, lambda: None)
    driver.sleep("5ms")
    driver.publish("a1")
    driver.wait("100ms")
    driver.take()
    begun, *rest = recorder.take_calls()
    assert isinstance(begun, Copied)
    assert [type(call) for call in rest] == [Published, Advanced, Taken]
    assert [call.now // 1_000_000 for call in rest] == [5, 105, 105]
    assert not any(isinstance(call, Joined) for call in rest)


@rule("trace-5")
def test_there_are_ten_at_most() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms")
    subscriber = driver.engine.session("s").subscribers.get((name, "px"))
    assert subscriber is not None
    watchers = driver.engine.watchers
    running = [begin_recording(watchers, subscriber, 0, lambda: None) for _ in range(RECORDERS_MAX)]
    with pytest.raises(LimitReached):
        begin_recording(watchers, subscriber, 0, lambda: None)
    end_recording(watchers, running[0])
    begin_recording(watchers, subscriber, 0, lambda: None)


@rule("trace-5")
def test_who_stops_leaves_nothing_behind() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms")
    subscriber = driver.engine.session("s").subscribers.get((name, "px"))
    assert subscriber is not None
    first = begin_recording(driver.engine.watchers, subscriber, 0, lambda: None)
    second = begin_recording(driver.engine.watchers, subscriber, 0, lambda: None)
    end_recording(driver.engine.watchers, first)
    assert (driver.engine.watchers, subscriber.watchers) == ([second], (second,))
    end_recording(driver.engine.watchers, second)
    assert (driver.engine.watchers, subscriber.watchers) == ([], ())
