"""Scheduled streams and steps, the timer and idle time, on a real event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.app.streams.test_driver import PLENTY, Stage
from tests.support.deadlines import HANGS_S
from tests.support.gateways import eventually
from tests.support.manual_driver import described, make_frames
from tidegate.app.streams import scheduler
from tidegate.app.streams.driver import Consumer
from tidegate.app.streams.scheduler import IdleTask, StreamScheduler, Timer, in_turns
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.steps import Steps
from tidegate.keys.text.duration import MILLISECOND

LANES = 8
NOW = 1_000 * MILLISECOND


async def test_a_stream_that_is_behind_is_called_however_many_others_are_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "BUDGET_S", -1.0)  # as if each call took longer than its budget
    streams, called = StreamScheduler(), list[str]()

    def busy() -> None:
        called.append("busy")
        streams.call_soon(busy)

    def large() -> None:
        called.append("large")
        streams.call_soon(large, behind=True)

    streams.call_soon(large, behind=True)
    streams.call_soon(busy)
    for _ in range(3):
        await asyncio.sleep(0)
    assert called == ["busy", "large"] * 3


async def test_one_that_is_behind_is_behind_when_its_time_has_come() -> None:
    streams, called = StreamScheduler(), list[str]()
    due_s = asyncio.get_running_loop().time()
    streams.call_at(due_s, lambda: called.append("large"), behind=True)
    streams.call_at(due_s, lambda: called.append("small"))
    async with asyncio.timeout(HANGS_S):
        while len(called) < 2:
            await asyncio.sleep(0)
    assert called == ["small", "large"]


async def test_a_stream_that_fails_does_not_stop_others() -> None:
    streams, called, loop = StreamScheduler(), list[str](), asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: called.append(str(context["exception"])))
    streams.call_soon(lambda: [].pop())
    streams.call_soon(lambda: called.append("other"))
    for _ in range(3):
        await asyncio.sleep(0)
    streams.call_soon(lambda: called.append("later"))
    await asyncio.sleep(0)
    assert called == ["pop from empty list", "other", "later"]


async def test_a_timer_calls_nobody_that_is_behind() -> None:
    streams, called = StreamScheduler(), list[str]()

    def wake() -> None:
        streams.call_soon(lambda: called.append("large"), behind=True)
        streams.call_soon(lambda: called.append("small"))

    streams.call_now(wake)
    assert called == ["small"]
    await asyncio.sleep(0)
    assert called == ["small", "large"]


async def crowded() -> tuple[Stage, list[Consumer]]:
    """Many lanes that are due together, in steps of one, and a topic `good` beside them."""
    stage = Stage(items_at_once=1)
    options = [f"conflation=1h,conflation_key=[/k,/x{number}]" for number in range(LANES)]
    consumers = [stage.open(each, f"s{number}") for number, each in enumerate(options)]
    await stage.say("a1 a2")
    stage.driver.define_topic("good", stage.definition, "g1")
    good = decide("good", stage.definition, Options.parse("conflation=2h"), command="subscribe")
    consumers.append(stage.driver.open("good"))
    stage.driver.subscribe("good", "sub", good)
    await stage.driver.publish("good", make_frames("b1"))
    stage.pass_ms(3_600_000)
    return stage, consumers


def taken(consumers: list[Consumer]) -> list[str]:
    """What each has to take, in one text for each that has anything."""
    texts = [" ".join(described(consumer.take(PLENTY))) for consumer in consumers]
    return [text for text in texts if text]


async def count_iterations(stage: Stage) -> int:
    """Run the loop until nothing is left; return the number of iterations."""
    for count in range(100):
        if stage.driver.engine.schedule.left_since() is None:
            return count
        await asyncio.sleep(0)
    raise AssertionError("it is never done")


async def test_what_a_timer_leaves_is_flushed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "BUDGET_S", -1.0)
    stage, consumers = await crowded()
    stage.driver._advance(stage.now)
    assert taken(consumers) == ["a2"]
    assert await count_iterations(stage) >= LANES - 1
    assert taken(consumers) == ["a2"] * (LANES - 1)


async def test_what_a_timer_leaves_holds_up_no_other_timer() -> None:
    stage, consumers = await crowded()
    due = stage.now
    stage.driver._advance(due)
    schedule = stage.driver.engine.schedule
    assert (schedule.left_since(), schedule.next_new()) == (due, due + 3_600_000 * 1_000_000)
    assert stage.driver._timer._due == schedule.next_new()
    stage.pass_ms(3_600_000)
    stage.driver._advance(stage.now)
    assert "b1" in taken(consumers)


async def test_a_lane_that_ends_before_its_flush_is_not_flushed() -> None:
    stage, consumers = await crowded()
    stage.driver._advance(stage.now)
    for number in range(1, LANES):
        stage.driver.close(f"s{number}")
    assert await count_iterations(stage) == 0
    await asyncio.sleep(0)  # the call that was scheduled finds nothing
    assert stage.driver.now() == stage.now
    assert taken(consumers) == ["a2"]


async def test_it_rings_at_what_it_was_set_to_last() -> None:
    rung: list[int] = []
    timer = Timer(lambda: NOW, rung.append)
    for due in (NOW + 3_600_000 * MILLISECOND, NOW + MILLISECOND, NOW + MILLISECOND):
        timer.set(due)
    await eventually(lambda: bool(rung), "it rings")
    assert rung == [NOW + MILLISECOND]
    timer.set(NOW - MILLISECOND)
    assert len(rung) == 1, "not before its caller is done"
    await asyncio.sleep(0)  # asyncio calls timers after what was ready before
    await asyncio.sleep(0)
    assert rung[1:] == [NOW - MILLISECOND]


async def test_it_is_set_to_nothing() -> None:
    rung: list[int] = []
    timer = Timer(lambda: NOW, rung.append)
    timer.set(NOW)
    timer.set(None)
    await asyncio.sleep(0)
    assert rung == []


async def test_an_iteration_runs_one_step_however_many_requests_wait() -> None:
    steps: list[str] = []

    def work(name: str) -> Steps[str]:
        for _ in range(5):
            steps.append(name)
            yield
        return name

    tasks = [asyncio.create_task(in_turns(work(name))) for name in ("a", "b", "c")]
    while not all(task.done() for task in tasks):
        before = len(steps)
        await asyncio.sleep(0)
        assert len(steps) - before <= 1
    assert "".join(steps) == "abc" * 5
    assert [await task for task in tasks] == ["a", "b", "c"]


class Work:
    """So many steps; what cannot be done is none."""

    def __init__(self, steps: int, *, is_stuck: bool = False) -> None:
        self.left = steps
        self.tried = 0
        self.is_stuck = is_stuck
        self.idle = IdleTask(lambda: self.left > 0, self.step)

    def step(self) -> bool:
        self.tried += 1
        if self.is_stuck:
            return False
        self.left -= 1
        return True


async def pass_idle_checks() -> None:
    """Wait until an idle task that waits would have been called."""
    await asyncio.sleep(4 * scheduler.IDLE_CHECK_S)


async def test_all_work_is_done_in_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LATE_S", 60.0)  # any time is idle
    work = Work(3)
    for _ in range(2):
        work.idle.schedule()
    await eventually(lambda: not work.left, "it is done")
    await pass_idle_checks()
    assert work.tried == 3


async def test_without_work_nothing_is_tried() -> None:
    work = Work(0)
    work.idle.schedule()
    await pass_idle_checks()
    assert work.tried == 0


async def test_what_cannot_be_done_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LATE_S", 60.0)
    work = Work(1, is_stuck=True)
    work.idle.schedule()
    await eventually(lambda: work.tried > 0, "it was tried")
    await pass_idle_checks()
    assert work.tried == 1


async def test_while_the_loop_is_blocked_no_work_is_done() -> None:
    work = Work(1)
    work.idle.schedule()
    time.sleep(scheduler.IDLE_CHECK_S + 2 * scheduler.LATE_S)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert work.tried == 0
    await eventually(lambda: not work.left, "it is done later")
