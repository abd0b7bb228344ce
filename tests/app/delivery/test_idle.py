"""Work is done in idle time, a step at a time, and not while the loop is held."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.gateways import eventually
from tidegate.app.delivery import timers
from tidegate.app.delivery.timers import IdleTask


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
