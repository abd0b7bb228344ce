"""The virtual loop: asyncio as usual, in no time, the same for every run of a seed."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from tests.support.clocks.virtual_loop import SECOND, Stuck, VirtualLoop, virtual_loop


def test_an_hour_passes_at_once() -> None:
    async def sleepy() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    assert virtual_loop().run(sleepy()) == 3_600


def test_timers_come_in_the_order_of_their_times() -> None:
    async def race() -> list[int]:
        done: list[int] = []

        async def runner(ms: int) -> None:
            await asyncio.sleep(ms / 1_000)
            done.append(ms)

        await asyncio.gather(*(runner(ms) for ms in (30, 10, 20)))
        return done

    assert virtual_loop(7).run(race()) == [10, 20, 30]


async def order_of(count: int) -> list[int]:
    """Who of so many that wait for the same moment comes when."""
    done: list[int] = []

    async def runner(number: int) -> None:
        await asyncio.sleep(1)
        done.append(number)

    await asyncio.gather(*(runner(number) for number in range(count)))
    return done


def test_what_is_ready_at_once_comes_in_the_seeds_order() -> None:
    orders = [virtual_loop(seed).run(order_of(8)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == virtual_loop().run(order_of(8)) == list(range(8))


def test_timeouts_of_asyncio_and_anyio_run_on_it() -> None:
    async def impatient() -> tuple[bool, bool, float]:
        forever = asyncio.Event()
        with anyio.move_on_after(2) as moved:
            await forever.wait()
        try:
            async with asyncio.timeout(3):
                await forever.wait()
        except TimeoutError:
            return moved.cancelled_caught, True, anyio.current_time()
        return moved.cancelled_caught, False, 0

    assert virtual_loop(1).run(impatient()) == (True, True, 5.0)


def test_a_time_in_ns_is_exact() -> None:
    async def late() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(86_400)
        await asyncio.sleep(0.1)
        return loop.now_ns

    assert virtual_loop().run(late()) == 86_400 * SECOND + 100_000_000


def test_a_task_that_waits_for_nothing_is_reported() -> None:
    async def lonely() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck):
        virtual_loop().run(lonely())


def test_a_task_that_stops_the_clock_is_reported() -> None:
    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="stands still"):
        virtual_loop().run(busy())


def test_what_is_left_is_cancelled() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(99)
        finally:
            ended.append("background")

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        assert not task.done()

    virtual_loop().run(main())
    assert ended == ["background"]


def test_what_nobody_caught_is_kept() -> None:
    def broken() -> None:
        raise ValueError("by itself")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(broken)
        await asyncio.sleep(1)

    loop = virtual_loop()
    loop.run(main())
    assert [str(failure["exception"]) for failure in loop.failures] == ["by itself"]
