"""Steady time: a wait is a wait, a hold is none, and afterwards all is as before."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.clocks.steady import HELD_S_MAX, SteadyTime, steady


def test_a_hold_counts_for_little_and_a_wait_as_it_was_asked_for() -> None:
    clock = [0.0]
    now = SteadyTime(100.0, lambda: clock[0])
    clock[0] += HELD_S_MAX / 2
    assert now() == 100.0 + HELD_S_MAX / 2
    clock[0] += 60.0
    assert now() == 100.0 + HELD_S_MAX * 1.5
    for asked_s, took_s, counted_s in ((1.0, 0.5, 0.5), (1.0, 60.0, 1.0), (None, 7.0, 7.0)):
        before_s = now()
        clock[0] += took_s
        now.waited(asked_s)
        assert now() == before_s + counted_s


@pytest.mark.nightly
async def test_who_has_a_turn_in_time_is_not_late_for_a_hold() -> None:
    loop, story = asyncio.get_running_loop(), list[str]()
    with steady(loop):
        late = loop.call_later(5 * HELD_S_MAX, story.append, "late")
        time.sleep(10 * HELD_S_MAX)  # which holds the loop
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert story == []
        late.cancel()


@pytest.mark.nightly
async def test_who_waits_waits_as_long_as_ever() -> None:
    loop = asyncio.get_running_loop()
    with steady(loop):
        began_s, real_s = loop.time(), time.monotonic()
        await asyncio.sleep(0.05)
        assert loop.time() - began_s > 0.049  # a loop may call a little early
        assert time.monotonic() - real_s > 0.049


@pytest.mark.nightly
async def test_afterwards_time_is_the_machine_s_again() -> None:
    loop = asyncio.get_running_loop()
    with steady(loop):
        time.sleep(3 * HELD_S_MAX)
        assert loop.time() < time.monotonic() - HELD_S_MAX
    before_s = time.monotonic()
    assert before_s <= loop.time() <= time.monotonic()
    assert "time" not in vars(loop)
