"""Timers, work in idle time, and the pauses of retries."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from tests.support.gateways import eventually
from tidegate.app import timers
from tidegate.app.timers import Backoff, IdleTask, Timer, in_turns
from tidegate.conflation.steps import Steps
from tidegate.keys.text.duration import MILLISECOND

NOW = 1_000 * MILLISECOND


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


async def test_a_turn_of_the_loop_has_one_step_however_many_ask() -> None:
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


async def test_all_of_it_is_done_and_then_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "LATE_S", 60.0)  # any time is idle
    work = Work(3)
    for _ in range(2):
        work.idle.look()
    assert work.idle.is_looking
    await eventually(lambda: not work.left, "it is done")
    assert (work.tried, work.idle.is_looking) == (3, False)


async def test_without_work_nobody_looks() -> None:
    work = Work(0)
    work.idle.look()
    assert not work.idle.is_looking


async def test_what_cannot_be_done_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "LATE_S", 60.0)
    work = Work(1, is_stuck=True)
    work.idle.look()
    await eventually(lambda: not work.idle.is_looking, "it was tried")
    assert work.tried == 1


async def test_while_the_loop_is_held_nothing_is_done() -> None:
    work = Work(1)
    work.idle.look()
    time.sleep(timers.LOOK_S + 2 * timers.LATE_S)  # the loop is held
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (work.tried, work.idle.is_looking) == (0, True)
    await eventually(lambda: not work.left, "it is done later")


def test_pauses_double_up_to_the_longest_with_jitter_and_begin_anew() -> None:
    drawn: list[tuple[float, float]] = []

    def least(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    backoff = Backoff(0.05, 2.0, least)
    assert [backoff.next_s() for _ in range(4)] == [0.025, 0.05, 0.1, 0.2]
    assert [backoff.next_s() for _ in range(2_000)][-1] == 1.0, "an outage may last for days"
    assert set(drawn) == {(0.5, 1.0)}
    backoff.succeeded()
    assert backoff.next_s() == 0.025


async def test_a_constant_pause_has_no_jitter_and_only_the_first_failure_is_loud() -> None:
    backoff = Backoff(0.001)
    levels = []
    for _ in range(3):
        levels.append(backoff.level)
        await backoff.pause()
    assert levels == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert backoff.next_s() == 0.001
    backoff.succeeded()
    assert backoff.level == logging.WARNING
