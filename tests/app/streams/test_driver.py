"""The driver: slices, the one timer, which streams are woken; a manual clock, a real loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.manual_driver import described, make_frames
from tidegate.app.streams import scheduler
from tidegate.app.streams.driver import _CLOSED, Consumer, Driver
from tidegate.conflation import steps
from tidegate.conflation.definition import Definition, History, QueuePolicy
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import LimitReached, TopicUnknown
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import CloseReason, Output, RecordsExpired, Rows
from tidegate.conflation.sessions.registry import GONE
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND

PLENTY = 1 << 30


class Stage:
    """A driver on a clock that moves when told, and consumers on a topic `px` with key /k."""

    def __init__(
        self,
        *,
        policy: str = "conflate",
        messages_max: int = 1_000,
        sessions_max: int = 10,
        expiration_ns: int | None = None,
        items_at_once: int | None = None,
    ) -> None:
        """`items_at_once`: of each step for the rest of the test; None: there are no steps."""
        if items_at_once is not None:
            steps.ITEMS_AT_ONCE = items_at_once
        self.now = 1_000 * MILLISECOND
        engine = Engine(
            sessions_max=sessions_max,
            subscriptions_max=4,
            in_steps=items_at_once is not None,
        )
        self.driver = Driver(
            engine,
            QueueLimits(messages_max, PLENTY),
            clock=lambda: self.now,
            wall_ms=lambda: self.now // MILLISECOND,
        )
        self.definition = Definition(
            History(100_000),
            KeySpec.of(["/k"]),
            QueuePolicy(policy),
            expiration_ns=expiration_ns,
        )
        self.driver.define_topic("px", self.definition, "e1")

    def open(self, options: str = "", session: str = "s", command: str = "subscribe") -> Consumer:
        consumer = self.driver.open(session)
        self.subscribe(options, session, command)
        return consumer

    def subscribe(self, options: str, session: str, command: str = "subscribe") -> Bookmark:
        wanted = decide("px", self.definition, Options.parse(options), command=command)
        return self.driver.subscribe(session, "sub", wanted)

    async def say(self, text: str) -> None:
        first = self.driver.engine.topic("px").head + 1
        await self.driver.publish("px", make_frames(text, first))

    def pass_ms(self, ms: int) -> None:
        self.now += ms * MILLISECOND


async def woken(consumer: Consumer) -> list[str]:
    """Everything that a consumer can take once it is woken."""
    assert await consumer.wait(HANGS_S)
    taken: list[Output] = []
    while outputs := consumer.take(PLENTY):
        taken += outputs
    return described(taken)


async def test_a_message_wakes_its_subscriber() -> None:
    stage = Stage()
    consumer = stage.open()
    await stage.say("a1 b2")
    assert await woken(consumer) == ["a1 b2"]
    assert consumer.take(PLENTY) == []


async def test_a_snapshot_wakes_its_subscriber_at_once() -> None:
    stage = Stage()
    await stage.say("a1")
    consumer = stage.open("conflation=1h", command="sow_and_subscribe")
    assert await woken(consumer) == ["group of 1", "snapshot: a1", "group ends at e1-1"]


@pytest.mark.parametrize("left", [0, 1])
async def test_the_rest_of_a_publish_is_left_out_of_a_topic_that_has_begun_again(left: int) -> None:
    stage = Stage(messages_max=2)  # of which a slice is half
    saying = asyncio.create_task(stage.say("a1 b1 c1"))
    await asyncio.sleep(0)
    engine = stage.driver.engine
    assert engine.topic("px").head == 1
    kept = RestoredTopic(left, journal=make_frames("a1")[:left], former={"e1": left})
    engine.restart_topic("px", "e2", kept, stage.driver.now(), 0)
    await saying
    assert (engine.topic("px").epoch, engine.topic("px").head) == ("e2", left)


async def test_nobody_is_woken_for_nothing() -> None:
    stage = Stage()
    consumer = stage.open("conflation=1h")
    await stage.say("a1")
    assert not await consumer.wait(0.01)


async def test_an_interval_ends_by_the_loops_timer() -> None:
    stage = Stage()
    consumer = stage.open("conflation=10ms")
    await stage.say("a1 a2 b1")
    assert consumer.take(PLENTY) == []
    assert await woken(consumer) == ["a2 b1"]


async def test_a_flush_is_written_in_the_iteration_of_its_timer() -> None:
    stage = Stage()
    happened: list[str] = []
    dispatch = stage.driver.dispatch

    def dispatch_and_wake() -> None:
        dispatch()
        stage.driver.streams.call_soon(lambda: happened.append("a stream"))
        asyncio.get_running_loop().call_soon(happened.append, "the next iteration")

    stage.driver.dispatch = dispatch_and_wake  # type: ignore[method-assign]  # wakes a stream, too
    stage.driver._advance(stage.now)
    happened.append("the timer's end")
    await asyncio.sleep(0)
    assert happened == ["a stream", "the timer's end", "the next iteration"]


async def test_a_timer_that_comes_early_counts_as_on_time() -> None:
    """The loop's own clock moved, ours did not: what was promised for then happens then."""
    stage = Stage()
    consumer = stage.open("conflation=5ms,pace=key")
    await stage.say("a1")
    assert await woken(consumer) == ["a1"]
    await stage.say("a2")  # and the driver's time does not run back either
    assert await woken(consumer) == ["a2"]


async def test_a_clock_that_stumbles_does_not_run_back() -> None:
    stage = Stage()
    consumer = stage.open()
    await stage.say("a1")
    stage.pass_ms(-500)
    await stage.say("a2")
    assert await woken(consumer) == ["a1 a2"]


async def test_a_nearer_deadline_takes_the_timer_over() -> None:
    stage = Stage()
    slow = stage.open("conflation=1h", session="slow")
    await stage.say("a1")
    quick = stage.open("conflation=5ms", session="quick")
    await stage.say("a2")
    assert await woken(quick) == ["a2"]
    assert not await slow.wait(0.001)


async def test_when_the_nearest_has_gone_the_next_is_armed() -> None:
    stage = Stage()
    first = stage.open("conflation=5ms", session="first")
    second = stage.open("conflation=25ms", session="second")
    await stage.say("a1")
    assert await woken(first) == ["a1"]
    assert await woken(second) == ["a1"]


async def test_a_lane_that_ended_leaves_no_timer() -> None:
    stage = Stage()
    consumer = stage.open("conflation=1h")
    await stage.say("a1")
    consumer.close()
    assert stage.driver.engine.next_deadline() is None
    assert not [
        handle
        for handle in asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]  # asyncio's own
        if not handle.cancelled()
    ]


async def test_equal_subscriptions_take_the_same_batch() -> None:
    stage = Stage()
    consumers = [stage.open("conflation=5ms", session=name) for name in "abc"]
    await stage.say("a1")
    batches = []
    for consumer in consumers:
        assert await consumer.wait(HANGS_S)
        [rows] = consumer.take(PLENTY)
        assert isinstance(rows, Rows)
        batches.append(rows.batch)
    assert batches[0] is batches[1] is batches[2]


def test_the_log_has_a_sentence_for_each_end_of_a_session() -> None:
    assert _CLOSED.keys() == {GONE, *CloseReason}


async def test_a_large_publish_lets_streams_write_in_between() -> None:
    stage = Stage(policy="off", messages_max=100)
    consumer = stage.open()
    taken: list[Output] = []
    reading = asyncio.create_task(read(consumer, taken))
    await stage.say(" ".join(f"a{n}" for n in range(1_000)))
    await until(
        lambda: sum(len(out.batch.frames) for out in taken if isinstance(out, Rows)) == 1_000
    )
    assert stage.driver.closed_sessions == {}
    reading.cancel()


async def test_a_large_publish_waits_for_sockets_that_take_their_time() -> None:
    """A stream whose socket drains in a few iterations of the loop is healthy: it loses nothing."""
    stage = Stage(policy="off", messages_max=100)
    consumer = stage.open()
    taken: list[Output] = []
    reading = asyncio.create_task(read(consumer, taken, iterations=5, bytes_max=200))
    await stage.say(" ".join(f"a{n}" for n in range(2_000)))
    await until(
        lambda: sum(len(out.batch.frames) for out in taken if isinstance(out, Rows)) == 2_000
    )
    assert stage.driver.closed_sessions == {}
    reading.cancel()


async def test_a_large_publish_heeds_whoever_may_queue_less_than_others() -> None:
    """CONTRACT 6: no single request breaches a healthy session."""
    stage = Stage(policy="off")
    consumer = stage.driver.open("tight", QueueLimits(20, PLENTY))
    stage.subscribe("", "tight")
    taken: list[Output] = []
    reading = asyncio.create_task(read(consumer, taken))
    await stage.say(" ".join(f"a{n}" for n in range(400)))
    await until(lambda: sum(len(out.batch.frames) for out in taken if isinstance(out, Rows)) == 400)
    assert stage.driver.closed_sessions == {}
    reading.cancel()


async def test_a_large_publish_does_not_wait_for_a_frozen_stream() -> None:
    stage = Stage(policy="off", messages_max=100)
    frozen = stage.open(session="frozen")
    stage.open("conflation=1h", session="patient")
    await stage.say(" ".join(f"a{n}" for n in range(1_000)))
    assert stage.driver.engine.topic("px").head == 1_000
    assert stage.driver.closed_sessions == {CloseReason.QUEUE_LIMIT: 1}
    assert described(frozen.take(PLENTY)) == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]


async def read(
    consumer: Consumer, taken: list[Output], *, iterations: int = 0, bytes_max: int = PLENTY
) -> None:
    """A stream: takes, and needs some iterations of the loop to write what it took."""
    while await consumer.wait(HANGS_S):
        while outputs := consumer.take(bytes_max):
            taken += outputs
            for _ in range(iterations):
                await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_closing_by_the_peer_is_no_reason() -> None:
    stage = Stage()
    consumer = stage.open()
    consumer.close()
    consumer.close()
    assert consumer.take(PLENTY) == []
    assert stage.driver.closed_sessions == {}
    assert stage.driver.engine.stats().sessions == 0


async def test_a_peer_that_is_given_up_is_counted_once() -> None:
    stage = Stage()
    consumer = stage.open()
    consumer.give_up(CloseReason.WRITE_TIMEOUT)
    consumer.close()
    assert stage.driver.closed_sessions == {CloseReason.WRITE_TIMEOUT: 1}
    assert stage.driver.engine.stats().sessions == 0


async def test_every_session_is_told_goodbye() -> None:
    stage = Stage()
    consumers = [stage.open(session=name) for name in "ab"]
    assert stage.driver.close_all(CloseReason.SHUTDOWN) == 2
    for consumer in consumers:
        assert await woken(consumer) == ["goodbye SHUTDOWN"]
        consumer.close()
    assert stage.driver.closed_sessions == Counter({CloseReason.SHUTDOWN: 2})


async def test_subscribers_of_a_topic_that_ends_are_told() -> None:
    stage = Stage()
    consumer = stage.open()
    stage.driver.drop_topic("px")
    assert await woken(consumer) == ["unsubscribed from px: REMOVED", "goodbye UNSUBSCRIBED"]


async def test_a_session_that_is_refused_is_not_there() -> None:
    stage = Stage(sessions_max=1)
    stage.open()
    with pytest.raises(LimitReached):
        stage.open(session="two")
    assert stage.driver.engine.stats().sessions == 1


async def test_a_topic_that_is_not_there_cannot_be_joined() -> None:
    stage = Stage()
    wanted = decide("none", stage.definition, Options())
    stage.driver.open("s")
    with pytest.raises(TopicUnknown):
        stage.driver.subscribe("s", "sub", wanted)


async def test_a_session_that_lasts_waits_for_topics() -> None:
    stage = Stage()
    consumer = stage.driver.open("s", lasts=True)
    assert consumer.take(PLENTY) == []
    await stage.say("a1")
    assert str(stage.subscribe("", "s")) == "e1-1"
    stage.driver.drop_topic("px")
    assert await woken(consumer) == ["unsubscribed from px: REMOVED"]


async def test_what_the_shell_has_to_say_wakes_the_stream_once() -> None:
    stage = Stage()
    consumer = stage.open()
    consumer.send(b"one")
    consumer.send(b"two")
    assert await consumer.wait(HANGS_S)
    assert consumer.notices() == b"onetwo"
    assert consumer.notices() == b""


async def test_a_consumer_knows_what_it_has_everything_of() -> None:
    stage = Stage()
    consumer = stage.open("conflation=1h")
    assert consumer.caught_up() == [(("sub", "px"), Bookmark("e1", 0))]
    await stage.say("a1")
    assert consumer.caught_up() == []


async def test_how_old_messages_were_on_arrival_is_noted() -> None:
    """Frames of the test are stamped 1 ms, 2 ms and so on; it is one second past now."""
    stage = Stage()
    stage.open()
    await stage.say("a1 a2")
    write_context = stage.driver.write_context(has_unsent=True, is_behind=False)
    assert (write_context.now_ms, write_context.has_unsent, write_context.is_behind) == (
        1_000,
        True,
        False,
    )
    assert write_context.arrival_ages_ms == {"px": 999}
    stage.driver.drop_topic("px")
    assert stage.driver.write_context(has_unsent=True, is_behind=False).arrival_ages_ms == {}


async def test_expired_records_are_announced() -> None:
    stage = Stage(expiration_ns=5 * MILLISECOND)
    expired = list[RecordsExpired]()
    stage.driver.on_expired = expired.append
    await stage.say("a1")
    await until(lambda: bool(expired))
    assert expired == [RecordsExpired("px", "e1", 1)]


async def test_an_opening_takes_turns_with_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board of ten records in steps of one: others are served between any two of them."""
    monkeypatch.setattr(scheduler, "BUDGET_S", -1.0)  # as if each step took longer than its budget
    stage = Stage(items_at_once=1)
    await stage.say("a1 b2 c3 d4 e5 f6 g7 h8 i9 j0")
    consumer = stage.open("top_n=2", command="sow_and_subscribe")
    assert consumer.take(PLENTY) == []
    iterations = 0
    while stage.driver.engine.has_openings:
        iterations += 1
        await asyncio.sleep(0)
    assert iterations >= 10
    assert await woken(consumer) == ["group of 2", "snapshot: a1 b2", "group ends at e1-10"]
    await stage.say("a3")
    assert await woken(consumer) == ["a3"]
