"""Traces: replayable to the same output, bounded, and never a story of their own."""

from __future__ import annotations

from dataclasses import replace

from tests.support.rules import rule
from tests.support.tracing import TracedDriver
from tidegate.conflation.tracing.recorder import BYTES_MAX, OVERRUN, Copied, Taken, TraceRecorder
from tidegate.conflation.tracing.replay import DIVERGED, Trace, fresh, replay, same


def held_and_owed() -> tuple[TracedDriver, str]:
    """A subscription that has rows on the way when its trace begins: flushed ones and held ones."""
    driver = TracedDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms,pace=key", command="sow_and_delta_subscribe")
    driver.take()
    driver.publish("a1 b1")
    driver.wait("100ms")
    driver.publish("a2 c1")
    return driver, name


@rule("trace-1", "trace-2")
def test_a_trace_begins_at_any_moment() -> None:
    driver, name = held_and_owed()
    driver.trace(name)
    driver.take()
    driver.wait("100ms")
    driver.take()
    assert driver.lines() == [
        "taken @2 rows 2 (in step)", "delivered a @1 x1", "delivered b @2 x1",
        "flushed @4 rows 2",
        "taken @4 rows 2 (in step)", "delivered a @3 x1", "delivered c @4 x1",
    ]  # fmt: skip
    driver.check_replay()


@rule("trace-1")
def test_a_replay_can_be_repeated() -> None:
    """The records stay what they were."""
    driver, name = held_and_owed()
    driver.trace(name)
    driver.wait("100ms")
    driver.take()
    driver.lines()
    assert same(replay(driver.calls), replay(driver.calls))
    driver.check_replay()


@rule("trace-1")
def test_who_else_joins_the_lane_makes_no_difference() -> None:
    """A neighbour's join cuts what is held, also in the replay."""
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms,no_empties", command="sow_and_delta_subscribe")
    driver.take()
    for token in ("a1", "a2", "a1"):
        driver.publish(token)
        driver.subscribe(
            "conflation=100ms,no_empties", session=token, command="sow_and_delta_subscribe"
        )
    driver.wait("100ms")
    driver.take()
    driver.lines()
    driver.check_replay()


@rule("trace-2")
def test_a_change_is_shown_when_requested_and_when_made() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.subscribe("conflation=1s", session="other")
    driver.publish("z1")
    name = driver.subscribed("conflation=100ms")
    driver.publish("a1")
    driver.change(name, "conflation=1s")
    driver.publish("b1")
    driver.wait("100ms")
    driver.take()
    assert driver.lines()[1:] == [
        "held a @2 x1 due 100",
        "changed due 100 (conflation=1s,conflation_key=[/k],pace=batch)",
        "accepted b @3", "held b @3 x1 due 100",
        "moved rows 0 (conflation=1s,conflation_key=[/k],pace=batch)",
        "taken @3 rows 2 (behind)", "delivered a @2 x1", "delivered b @3 x1",
    ]  # fmt: skip


@rule("trace-5")
def test_a_trace_ends_with_its_subscription() -> None:
    driver = TracedDriver()
    driver.topic()
    name = driver.subscribed("conflation=100ms")
    driver.publish("a1")
    driver.engine.unsubscribe("s", name)
    driver.publish("a2")
    assert driver.lines()[2:] == ["unsubscribed (REQUESTED)"]
    assert driver.ended == "REQUESTED"


@rule("trace-5")
def test_a_trace_that_is_not_read_ends() -> None:
    """It keeps nothing, and says why."""
    driver = TracedDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms")
    subscriber = driver.engine.session("s").subscribers.get((name, "px"))
    assert subscriber is not None
    recorder = TraceRecorder(subscriber, 0, messages_max=3, bytes_max=BYTES_MAX)
    topic = driver.engine.topic("px")
    recorder.published(topic, topic.journal.after(0), 0)
    driver.publish("a1 a2 a3")
    recorder.published(topic, topic.journal.after(0), 7)
    recorder.published(topic, topic.journal.after(0), 8)
    (last,) = recorder.take_calls()
    trace = Trace()
    assert list(trace.decisions(last)) == []
    assert (last.now, trace.ended) == (7, OVERRUN)


@rule("trace-1")
def test_a_trace_that_differs_from_the_real_stream_ends() -> None:
    """Here the record says that nothing was taken."""
    driver, name = held_and_owed()
    driver.trace(name)
    driver.take()
    driver.lines()
    forged = [
        replace(call, outputs=()) if isinstance(call, Taken) else call for call in driver.calls
    ]
    trace = Trace()
    for call in forged:
        assert trace.ended is None
        list(trace.decisions(fresh(call)))
    assert trace.ended == DIVERGED


@rule("trace-1")
def test_a_new_definition_counts_in_the_replay() -> None:
    driver, name = held_and_owed()
    driver.trace(name)
    definition = driver.engine.topic("px").definition
    driver.engine.define_topic("px", replace(definition, values_only=True), "e1")
    driver.take()
    driver.publish("d1")
    driver.lines()
    assert [type(call).__name__ for call in driver.calls[1:]] == [
        "Redefined", "Taken", "Published"
    ]  # fmt: skip
    driver.check_replay()


@rule("trace-1")
def test_records_that_expire_do_so_by_the_original_alone() -> None:
    """Expiry comes as a message, not from the twin's own clock."""
    driver = TracedDriver()
    driver.topic(expiration="50ms")
    driver.subscribed("conflation=100ms,oof", command="sow_and_subscribe")
    driver.publish("a1")
    driver.wait("200ms")
    driver.take()
    driver.remove("a1")
    driver.wait("200ms")
    driver.take()
    driver.lines()
    assert isinstance(driver.calls[0], Copied)
    driver.check_replay()
