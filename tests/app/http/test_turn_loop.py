"""The gateway's loop: short turns, and in each of them timers and rested connections first."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.gateways import eventually
from tidegate.app.http.transport.turn_loop import RESTED_A_TURN_MAX, TURN_S, TurnLoop

MANY = 50


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of its loop: each begins with a look for events."""

    turns = 0

    def select(self, wait_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(wait_s)


def run(work: Callable[[TurnLoop, CountingSelector], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on such a loop."""
    selector = CountingSelector()
    loop = TurnLoop(selector)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work(loop, selector))


def spends(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


@contextmanager
def ready_sockets(count: int) -> Iterator[list[socket.socket]]:
    """Sockets that have something to read, which nobody reads."""
    pairs = [socket.socketpair() for _ in range(count)]
    for _, writer in pairs:
        writer.send(b"x")
    try:
        yield [reader for reader, _ in pairs]
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_what_is_ready_is_done_in_short_turns_and_in_its_order() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        done: list[tuple[int, int]] = []

        def step(number: int) -> None:
            done.append((selector.turns, number))
            spends(TURN_S)

        for number in range(MANY):
            loop.call_soon(step, number)
        await eventually(lambda: len(done) == MANY, "all are done")
        assert [number for _, number in done] == list(range(MANY))
        assert max(Counter(turn for turn, _ in done).values()) == 1

    run(work)


def test_cheap_work_shares_a_turn() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        turns: set[int] = set()
        for _ in range(MANY):
            loop.call_soon(lambda: turns.add(selector.turns))
        await asyncio.sleep(0)
        await eventually(lambda: bool(turns), "they are done")
        assert len(turns) < MANY / 2

    run(work)


def test_a_timer_that_is_due_goes_before_all_that_is_ready() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        order: list[str] = []

        def foreign() -> None:
            order.append("foreign")
            spends(TURN_S)

        for _ in range(MANY):
            loop.call_soon(foreign)
        loop.call_later(0, order.append, "timer")
        await eventually(lambda: len(order) == MANY + 1, "all are done")
        assert order.index("timer") <= 1

    run(work)


def test_a_timer_that_becomes_due_within_a_turn_ends_it() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        order: list[str] = []
        passed_s = 0.0
        time_s = loop.time

        def step() -> None:
            nonlocal passed_s
            order.append("step")
            passed_s += TURN_S / 10

        began_s = time_s()
        loop.time = lambda: began_s + passed_s  # type: ignore[method-assign]  # only steps take time
        for _ in range(10):
            loop.call_soon(step)
        loop.call_later(TURN_S / 4, order.append, "timer")
        while len(order) < 11:
            await asyncio.sleep(0)
        loop.time = time_s  # type: ignore[method-assign]  # undoes the above
        assert order.index("timer") == 3

    run(work)


def test_a_socket_that_alone_is_ready_is_told_of_again() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        with ready_sockets(1) as [reader]:
            told: list[None] = []
            loop.add_reader(reader, told.append, None)  # which leaves its byte there
            await eventually(lambda: len(told) > 1, "it is told of twice")

    run(work)


def test_a_connection_that_has_rested_is_read_before_others_and_before_what_is_ready() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        with ready_sockets(MANY) as readers:
            order: list[int] = []

            def read(number: int, reader: socket.socket) -> None:
                order.append(number)
                spends(TURN_S)
                loop.remove_reader(reader)

            for number, reader in enumerate(readers):
                loop.add_reader(reader, read, number, reader)
            loop.rested = {readers[-1].fileno(): 2, readers[-2].fileno(): 1}
            await eventually(lambda: len(order) == MANY, "all are read")
            assert order[:3] == [MANY - 2, MANY - 1, 0]

    run(work)


def test_of_the_rested_a_turn_takes_a_few_the_longest_rested_first() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        with ready_sockets(MANY) as readers:
            order: list[tuple[int, int]] = []

            def read(number: int, reader: socket.socket) -> None:
                order.append((selector.turns, number))
                loop.remove_reader(reader)

            for number, reader in enumerate(readers):
                loop.add_reader(reader, read, number, reader)
                loop.rested[reader.fileno()] = -number
            await eventually(lambda: len(order) == MANY, "all are read")
            assert [number for _, number in order] == [*reversed(range(MANY))]
            assert max(Counter(turn for turn, _ in order).values()) == RESTED_A_TURN_MAX

    run(work)


def test_a_socket_that_is_always_ready_has_its_turn_and_no_more() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        with ready_sockets(MANY) as readers:
            told: Counter[int] = Counter()

            def read(number: int) -> None:
                told[number] += 1
                spends(TURN_S)

            for number, reader in enumerate(readers):
                loop.add_reader(reader, partial(read, number))
            await eventually(lambda: told.total() >= 3 * MANY, "each has had its turns")
            assert max(told.values()) - min(told.values()) <= 1
            for reader in readers:
                loop.remove_reader(reader)

    run(work)


def test_a_reader_that_is_removed_while_it_waits_is_not_called() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        with ready_sockets(2) as (first, second):
            called: list[str] = []

            def read() -> None:
                called.append("first")
                spends(TURN_S)
                loop.remove_reader(first)
                loop.remove_reader(second)

            loop.add_reader(first, read)
            loop.add_reader(second, called.append, "second")
            await eventually(lambda: bool(called), "one is read")
            for _ in range(3):
                await asyncio.sleep(0)
            assert called == ["first"]

    run(work)


def test_what_fails_is_reported_and_the_others_go_on() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        reported: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        done: list[str] = []

        def fails() -> None:
            raise ValueError("broken")

        loop.call_soon(fails)
        loop.call_soon(done.append, "the next")
        await asyncio.sleep(0)
        assert done == ["the next"]
        assert [str(context["exception"]) for context in reported] == ["broken"]

    run(work)


def test_an_interrupt_ends_the_loop_and_nothing_that_waits_is_lost() -> None:
    loop = TurnLoop(selectors.DefaultSelector())
    done: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    loop.call_soon(interrupted)
    loop.call_soon(done.append, "the next")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(60))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert done == ["the next"]


def test_other_threads_are_heard() -> None:
    async def work(loop: TurnLoop, selector: CountingSelector) -> None:
        told: list[int] = []

        def tell() -> None:
            for number in range(1_000):
                loop.call_soon_threadsafe(told.append, number)

        thread = threading.Thread(target=tell)
        thread.start()
        await eventually(lambda: len(told) == 1_000, "all was heard")
        thread.join()
        assert told == [*range(1_000)]

    run(work)
