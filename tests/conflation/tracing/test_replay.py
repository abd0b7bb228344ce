"""Traces: replayable to the same output, bounded, and never a story of their own."""

from __future__ import annotations

from dataclasses import replace

from tests.support.rules import rule
from tests.support.tracing import TracedWorld
from tidegate.conflation.tracing.recorder import BYTES_MAX, OVERRUN, Copied, Taken, TraceRecorder
from tidegate.conflation.tracing.replay import DIVERGED, Trace, fresh, replay, same


def held_and_owed() -> tuple[TracedWorld, str]:
    """A subscription that has rows on the way when its trace begins: flushed ones and held ones."""
    world = TracedWorld()
    world.topic()
    name = world.subscribe("conflation=100ms,pace=key", command="sow_and_delta_subscribe")
    world.take()
    world.say("a1 b1")
    world.wait("100ms")
    world.say("a2 c1")
    return world, name


@rule("trace-1", "trace-2")
def test_a_trace_begins_at_any_moment() -> None:
    world, name = held_and_owed()
    world.trace(name)
    world.take()
    world.wait("100ms")
    world.take()
    assert world.lines() == [
        "taken @2 rows 2 (in step)", "delivered a @1 x1", "delivered b @2 x1",
        "flushed @4 rows 2",
        "taken @4 rows 2 (in step)", "delivered a @3 x1", "delivered c @4 x1",
    ]  # fmt: skip
    world.check_replay()


@rule("trace-1")
def test_a_replay_can_be_repeated() -> None:
    """The records stay what they were."""
    world, name = held_and_owed()
    world.trace(name)
    world.wait("100ms")
    world.take()
    world.lines()
    assert same(replay(world.calls), replay(world.calls))
    world.check_replay()


@rule("trace-1")
def test_who_else_joins_the_lane_makes_no_difference() -> None:
    """A neighbour's join cuts what is held, also in the replay."""
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms,no_empties", command="sow_and_delta_subscribe")
    world.take()
    for token in ("a1", "a2", "a1"):
        world.say(token)
        world.subscribe(
            "conflation=100ms,no_empties", session=token, command="sow_and_delta_subscribe"
        )
    world.wait("100ms")
    world.take()
    world.lines()
    world.check_replay()


@rule("trace-2")
def test_a_change_is_told_when_it_is_asked_for_and_when_it_is_made() -> None:
    world = TracedWorld()
    world.topic()
    world.subscribe("conflation=1s", session="other")
    world.say("z1")
    name = world.subscribed("conflation=100ms")
    world.say("a1")
    world.change(name, "conflation=1s")
    world.say("b1")
    world.wait("100ms")
    world.take()
    assert world.lines()[1:] == [
        "held a @2 x1 due 100",
        "changed due 100 (conflation=1s,conflation_key=[/k],pace=batch)",
        "accepted b @3", "held b @3 x1 due 100",
        "moved rows 0 (conflation=1s,conflation_key=[/k],pace=batch)",
        "taken @3 rows 2 (behind)", "delivered a @2 x1", "delivered b @3 x1",
    ]  # fmt: skip


@rule("trace-5")
def test_a_trace_ends_with_its_subscription() -> None:
    world = TracedWorld()
    world.topic()
    name = world.subscribed("conflation=100ms")
    world.say("a1")
    world.engine.unsubscribe("s", name)
    world.say("a2")
    assert world.lines()[2:] == ["unsubscribed (REQUESTED)"]
    assert world.ended == "REQUESTED"


@rule("trace-5")
def test_a_trace_that_is_not_read_ends() -> None:
    """It keeps nothing, and says why."""
    world = TracedWorld()
    world.topic()
    name = world.subscribe("conflation=100ms")
    subscriber = world.engine.subscriber("s", (name, "px"))
    assert subscriber is not None
    recorder = TraceRecorder(subscriber, 0, messages_max=3, bytes_max=BYTES_MAX)
    topic = world.engine.topic("px")
    recorder.published(topic, topic.journal.after(0), 0)
    world.say("a1 a2 a3")
    recorder.published(topic, topic.journal.after(0), 7)
    recorder.published(topic, topic.journal.after(0), 8)
    (last,) = recorder.drain()
    trace = Trace()
    assert list(trace.decisions(last)) == []
    assert (last.now, trace.ended) == (7, OVERRUN)


@rule("trace-1")
def test_a_trace_that_tells_something_else_ends() -> None:
    """Here the record says that nothing was taken."""
    world, name = held_and_owed()
    world.trace(name)
    world.take()
    world.lines()
    forged = [
        replace(call, outputs=()) if isinstance(call, Taken) else call for call in world.calls
    ]
    trace = Trace()
    for call in forged:
        assert trace.ended is None
        list(trace.decisions(fresh(call)))
    assert trace.ended == DIVERGED


@rule("trace-1")
def test_a_new_definition_counts_in_the_replay() -> None:
    world, name = held_and_owed()
    world.trace(name)
    definition = world.engine.topic("px").definition
    world.engine.define_topic("px", replace(definition, values_only=True), "e1")
    world.take()
    world.say("d1")
    world.lines()
    assert [type(call).__name__ for call in world.calls[1:]] == [
        "Redefined", "Taken", "Published"
    ]  # fmt: skip
    world.check_replay()


@rule("trace-1")
def test_records_that_expire_do_so_by_the_original_alone() -> None:
    """Expiry comes as a message, not from the twin's own clock."""
    world = TracedWorld()
    world.topic(expiration="50ms")
    world.subscribed("conflation=100ms,oof", command="sow_and_subscribe")
    world.say("a1")
    world.wait("200ms")
    world.take()
    world.remove("a1")
    world.wait("200ms")
    world.take()
    world.lines()
    assert isinstance(world.calls[0], Copied)
    world.check_replay()
