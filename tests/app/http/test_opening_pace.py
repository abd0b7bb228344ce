"""A storm of openings leaves the loop to others between a few of them."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, cast

import pytest

from tests.support.gateways import Running, eventually, running_gateway
from tests.support.turns import ComputeTime, turn_by_turn
from tests.support.wire import Wire, connected, get
from tidegate.app.http import admission
from tidegate.app.http.admission import REQUESTS_A_TURN_MAX, TURN_S, Pace

SUBSCRIBE = get(first=b"GET /v1/topics/px/subscribe?command=subscribe HTTP/1.1")
HEALTH = get(first=b"GET /healthz HTTP/1.1")
PUBLISH = (
    get(
        b"Content-Type: application/x-ndjson",
        b"Content-Length: 7",
        first=b"POST /v1/topics/px/messages HTTP/1.1",
    )
    + b'{"k":1}'
)
STORM = 20 * REQUESTS_A_TURN_MAX


COMPUTE = ComputeTime()


@pytest.fixture(autouse=True)
def only_what_is_spent_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "time", COMPUTE)


async def connections(stack: contextlib.AsyncExitStack, running: Running, count: int) -> list[Wire]:
    """So many connections, which the server has accepted."""
    before = running.server.figures.connections
    made = [await stack.enter_async_context(connected(running.address)) for _ in range(count)]
    await eventually(
        lambda: running.server.figures.connections == before + count, "all are accepted"
    )
    return made


async def turns_of(pace: Pace, openings: int) -> list[list[int]]:
    """Which of so many openings, asked for at once, begin in each turn of the loop."""
    begun: list[int] = []
    for number in range(openings):
        pace.begin(0, lambda number=number: begun.append(number))  # type: ignore[misc]  # a default for the loop's number
    return await turn_by_turn(pace, begun)


async def test_a_few_begin_in_each_turn_of_the_loop_in_their_order() -> None:
    turns = await turns_of(Pace(), 3 * REQUESTS_A_TURN_MAX + 1)
    assert [len(turn) for turn in turns] == [REQUESTS_A_TURN_MAX] * 3 + [1]
    in_order = [number for turn in turns for number in turn]
    assert in_order == list(range(3 * REQUESTS_A_TURN_MAX + 1))


async def test_one_that_comes_alone_begins_at_once() -> None:
    pace = Pace()
    for _ in range(REQUESTS_A_TURN_MAX + 1):
        assert await turns_of(pace, 1) == [[0]]
        await asyncio.sleep(0)


async def test_one_that_comes_late_waits_behind_those_that_wait() -> None:
    pace, begun = Pace(), list[str]()
    for _ in range(REQUESTS_A_TURN_MAX + 1):
        pace.begin(0, lambda: begun.append("early"))
    pace.begin(0, lambda: begun.append("late"))
    assert len(pace) == 2
    await eventually(lambda: not len(pace), "all have begun")
    assert begun[-1] == "late"


async def test_dear_openings_begin_one_in_a_turn() -> None:
    """Their time counts, not their number."""
    pace, begun = Pace(), list[int]()

    def opening(number: int) -> None:
        begun.append(number)
        COMPUTE.spend(TURN_S)

    for number in range(REQUESTS_A_TURN_MAX):
        pace.begin(0, partial(opening, number))
    assert await turn_by_turn(pace, begun) == [[number] for number in range(REQUESTS_A_TURN_MAX)]


async def test_fewer_connections_are_accepted_while_openings_wait() -> None:
    """Those that wait have a parser and a buffer each: a storm's worth of memory."""
    async with running_gateway() as running:
        (listener,) = running.server.servers[0].sockets
        acceptor = cast("Any", listener)._sock
        assert acceptor.crowd() == 0
        openings: Pace = cast("Any", running.server.config.http).keywords["paces"].openings
        for _ in range(REQUESTS_A_TURN_MAX + 3):
            openings.begin(0, lambda: None)
        assert acceptor.crowd() == len(openings) > 0


async def test_health_checks_and_flushes_wait_for_a_few_openings_only() -> None:
    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        there, probe, publisher, *storm = await connections(stack, running, STORM + 3)
        await there.send(SUBSCRIBE)
        await there.read_until(b"event: hello")
        for wire in storm:
            wire.writer.write(SUBSCRIBE)
        probe.writer.write(HEALTH)
        publisher.writer.write(PUBLISH)

        def begun() -> int:
            return running.gateway.driver.engine.stats().sessions - 1

        assert (await probe.read_answer()).status == 200
        assert begun() < STORM // 2
        await there.read_until(b'{"k":1}')
        assert begun() < STORM
        for wire in storm:
            await wire.read_until(b"event: hello")
        assert begun() == STORM


async def test_a_client_that_leaves_while_it_waits_opens_no_session() -> None:
    async with running_gateway() as running:
        await running.topic()
        opened = running.gateway.sessions.open
        count = 0

        def counted(**given: object) -> object:
            nonlocal count
            count += 1
            return opened(**given)  # type: ignore[arg-type]  # as they were given

        running.gateway.sessions.open = counted  # type: ignore[method-assign,assignment]  # counts
        async with contextlib.AsyncExitStack() as stack:
            storm = await connections(stack, running, STORM)
            for wire in storm:
                wire.writer.write(SUBSCRIBE)
            for wire in storm[STORM // 2 :]:
                wire.transport.abort()
            for wire in storm[: STORM // 2]:
                await wire.read_until(b"event: hello")
        await eventually(lambda: running.server.figures.connections <= 1, "all have left")
        assert count < STORM
