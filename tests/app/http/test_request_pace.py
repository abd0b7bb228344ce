"""Requests of many connections begin a few in each turn of the loop, the rested ones first."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from itertools import groupby
from typing import cast

from tests.support.gateways import eventually, running_gateway
from tests.support.turns import turn_by_turn
from tests.support.wire import Wire, connected, get
from tidegate.app.http.admission import REQUESTS_A_TURN_MAX, REST_TURNS, TURN_S, RequestPace
from tidegate.app.http.connection import Connection
from tidegate.app.http.wire import PIPELINE_MAX

MANY = 20
LIST = get(first=b"GET /v1/topics HTTP/1.1")
HEALTH = get(first=b"GET /healthz HTTP/1.1")


class _Connection:
    rests_since = 0


def connection(pace: RequestPace) -> Connection:
    """A connection that has just come."""
    made = cast("Connection", _Connection())
    pace.enter(made)
    return made


def spends(seconds: float) -> None:
    """Keep the loop busy."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def asks(pace: RequestPace, source: Connection, name: str, begun: list[str]) -> None:
    """A request that takes a turn's time once it has begun."""

    def begin() -> None:
        begun.append(name)
        asyncio.get_running_loop().call_soon(spends, TURN_S)

    pace.begin(source, begin)


async def settle(pace: RequestPace) -> None:
    """Let the pace find out what a request costs, and come to rest."""
    begun: list[str] = []
    source = connection(pace)
    for _ in range(4 * REQUESTS_A_TURN_MAX):
        asks(pace, source, "", begun)
    await turn_by_turn(pace, begun)
    for _ in range(2 + REST_TURNS):
        await asyncio.sleep(0)


async def test_one_that_comes_alone_begins_at_once() -> None:
    pace, begun = RequestPace(), list[str]()
    await settle(pace)
    for _ in range(MANY):
        asks(pace, connection(pace), "it", begun)
        assert begun.pop() == "it"
        for _ in range(2 + REST_TURNS):
            await asyncio.sleep(0)


async def test_dear_requests_begin_one_in_a_turn() -> None:
    pace, begun = RequestPace(), list[str]()
    await settle(pace)
    for number in range(MANY):
        asks(pace, connection(pace), str(number), begun)
    turns = await turn_by_turn(pace, begun)
    assert max(map(len, turns)) == 1
    assert [name for turn in turns for name in turn] == [str(number) for number in range(MANY)]


async def test_others_have_some_turns_after_a_dear_request() -> None:
    pace, begun = RequestPace(), list[str]()
    await settle(pace)
    for number in range(MANY):
        asks(pace, connection(pace), str(number), begun)
    turns = [bool(turn) for turn in await turn_by_turn(pace, begun)]
    between = [list(group) for has_begun, group in groupby(turns[2:]) if not has_begun]
    assert len(between) >= MANY // 2
    assert min(map(len, between[1:])) >= REST_TURNS


async def test_cheap_requests_begin_many_in_a_turn() -> None:
    pace, begun = RequestPace(), list[str]()
    for _ in range(MANY):
        pace.begin(connection(pace), lambda: begun.append("it"))
    assert len(begun) == REQUESTS_A_TURN_MAX


async def test_a_connection_that_has_rested_goes_before_those_that_ask_all_the_time() -> None:
    pace, begun = RequestPace(), list[str]()
    good = connection(pace)
    busy = [connection(pace) for _ in range(MANY)]
    await settle(pace)
    for each in busy:
        asks(pace, each, "busy", begun)
    await turn_by_turn(pace, begun)
    for each in busy:
        asks(pace, each, "busy", begun)
    begun.clear()
    asks(pace, good, "good", begun)
    turns = await turn_by_turn(pace, begun)
    assert [name for turn in turns for name in turn].index("good") <= 1


async def test_another_connection_wins_nothing() -> None:
    pace, begun = RequestPace(), list[str]()
    good = connection(pace)
    await settle(pace)
    for _ in range(MANY):
        asks(pace, connection(pace), "new", begun)
    begun.clear()
    asks(pace, good, "good", begun)
    turns = await turn_by_turn(pace, begun)
    assert [name for turn in turns for name in turn].index("good") <= 1


async def test_connections_that_ask_all_the_time_take_turns() -> None:
    pace, begun = RequestPace(), list[str]()
    first, second = connection(pace), connection(pace)
    await settle(pace)

    def again(source: Connection, name: str, left: int) -> Callable[[], None]:
        def begin() -> None:
            begun.append(name)
            asyncio.get_running_loop().call_soon(spends, TURN_S)
            if left:
                pace.begin(source, again(source, name, left - 1))

        return begin

    pace.begin(first, again(first, "first", 9))
    pace.begin(second, again(second, "second", 9))
    turns = await turn_by_turn(pace, begun)
    names = [name for turn in turns for name in turn]
    assert [names.count("first"), names.count("second")] == [10, 10]
    assert max(map(names[:10].count, ("first", "second"))) <= 6


async def test_pipelined_requests_of_some_leave_the_gateway_to_others() -> None:
    answered = 0

    async def read_all(wire: Wire) -> None:
        nonlocal answered
        for _ in range(PIPELINE_MAX):
            assert (await wire.read_answer()).status == 200
            answered += 1

    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        probe, *crowd = [
            await stack.enter_async_context(connected(running.address)) for _ in range(MANY + 1)
        ]
        await probe.send(HEALTH)
        assert (await probe.read_answer()).status == 200
        for wire in crowd:
            wire.writer.write(LIST * PIPELINE_MAX)
        readers = [asyncio.create_task(read_all(wire)) for wire in crowd]
        await eventually(lambda: answered >= MANY, "each has had an answer")
        probe.writer.write(HEALTH)
        before = answered
        assert (await probe.read_answer()).status == 200
        assert answered - before < MANY
        await asyncio.gather(*readers)
