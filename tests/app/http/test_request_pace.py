"""Requests of many connections begin a few in each turn of the loop, the rested ones first."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from itertools import groupby
from typing import Any, cast

import pytest

from tests.support.gateways import eventually, running_gateway
from tests.support.turns import ComputeTime, turn_by_turn
from tests.support.wire import Wire, connected, get
from tidegate.app.http import admission
from tidegate.app.http.admission import REQUESTS_A_TURN_MAX, REST_TURNS, TURN_S, Paces
from tidegate.app.http.wire import PIPELINE_MAX
from tidegate.app.streams.connection import Connection

MANY = 20
LIST = get(first=b"GET /v1/topics HTTP/1.1")
PUBLISH = (
    b"POST /v1/topics/px/messages HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 8\r\n\r\n"
    b'{"k": 1}'
)
HEALTH = get(first=b"GET /healthz HTTP/1.1")


COMPUTE = ComputeTime()


@pytest.fixture(autouse=True)
def only_what_is_spent_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "time", COMPUTE)


class _Connection:
    rests_since = 0
    has_rested = False
    place = None
    descriptor = 7


def connection(paces: Paces) -> Connection:
    """A connection that has just come."""
    made = cast("Connection", _Connection())
    paces.rest(made)
    return made


def asks(paces: Paces, source: Connection, name: str, begun: list[str], more: int = 0) -> None:
    """A request that takes a turn's time once it has begun, and is answered then.

    `more` follow, one after the other, each sent when the one before it is answered.
    """

    def begin() -> None:
        begun.append(name)
        asyncio.get_running_loop().call_soon(answer)

    def answer() -> None:
        COMPUTE.spend(TURN_S)
        paces.rest(source)
        if more:
            asks(paces, source, name, begun, more - 1)

    paces.begin("/v1/topics", source, begin)


async def settle(paces: Paces) -> None:
    """Let the pace find out what a request costs, and come to rest."""
    begun: list[str] = []
    source = connection(paces)
    for _ in range(4 * REQUESTS_A_TURN_MAX):
        asks(paces, source, "", begun)
    await turn_by_turn(paces.requests, begun)
    for _ in range(2 + REST_TURNS):
        await asyncio.sleep(0)


async def test_one_that_comes_alone_begins_at_once() -> None:
    paces, begun = Paces(), list[str]()
    await settle(paces)
    for _ in range(MANY):
        asks(paces, connection(paces), "it", begun)
        assert begun.pop() == "it"
        for _ in range(2 + REST_TURNS):
            await asyncio.sleep(0)


async def test_a_request_that_fails_holds_up_no_other() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    paces, begun = Paces(), list[str]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    for _ in range(MANY):
        with contextlib.suppress(OSError):
            paces.requests.begin(0, fail)
    asks(paces, connection(paces), "it", begun)
    assert ["it"] in await turn_by_turn(paces.requests, begun)


async def test_dear_requests_begin_one_in_a_turn() -> None:
    paces, begun = Paces(), list[str]()
    await settle(paces)
    for number in range(MANY):
        asks(paces, connection(paces), str(number), begun)
    turns = await turn_by_turn(paces.requests, begun)
    assert max(map(len, turns)) == 1
    assert [name for turn in turns for name in turn] == [str(number) for number in range(MANY)]


async def test_others_have_some_turns_after_a_dear_request() -> None:
    paces, begun = Paces(), list[str]()
    await settle(paces)
    for number in range(MANY):
        asks(paces, connection(paces), str(number), begun)
    turns = [bool(turn) for turn in await turn_by_turn(paces.requests, begun)]
    between = [list(group) for has_begun, group in groupby(turns[2:]) if not has_begun]
    assert len(between) >= MANY // 2
    assert min(map(len, between[1:])) >= REST_TURNS


async def test_cheap_requests_begin_many_in_a_turn() -> None:
    paces, begun = Paces(), list[str]()
    for _ in range(MANY):
        paces.begin("/v1/topics", connection(paces), lambda: begun.append("it"))
    assert len(begun) == REQUESTS_A_TURN_MAX


async def test_a_connection_that_has_rested_goes_before_those_that_ask_all_the_time() -> None:
    paces, begun = Paces(), list[str]()
    good = connection(paces)
    busy = [connection(paces) for _ in range(MANY)]
    await settle(paces)
    for each in busy:
        asks(paces, each, "busy", begun)
    await turn_by_turn(paces.requests, begun)
    for each in busy:
        asks(paces, each, "busy", begun)
    begun.clear()
    asks(paces, good, "good", begun)
    turns = await turn_by_turn(paces.requests, begun)
    assert [name for turn in turns for name in turn].index("good") <= 1


async def test_another_connection_wins_nothing() -> None:
    paces, begun = Paces(), list[str]()
    good = connection(paces)
    await settle(paces)
    for _ in range(MANY):
        asks(paces, connection(paces), "new", begun)
    begun.clear()
    asks(paces, good, "good", begun)
    turns = await turn_by_turn(paces.requests, begun)
    assert [name for turn in turns for name in turn].index("good") <= 1


async def test_connections_that_ask_all_the_time_take_turns() -> None:
    paces, begun = Paces(), list[str]()
    for name in ("first", "second"):
        asks(paces, connection(paces), name, begun, more=9)
    await eventually(lambda: len(begun) == 20, "all have begun")
    assert [begun.count("first"), begun.count("second")] == [10, 10]
    assert max(map(begun[:10].count, ("first", "second"))) <= 6


async def test_time_that_a_request_waits_is_no_rest() -> None:
    """Else one of many connections that send in a row would be as good as one that asks seldom."""
    paces, begun = Paces(), list[str]()
    await settle(paces)
    good = connection(paces)
    for _ in range(MANY):
        asks(paces, connection(paces), "busy", begun, more=3)
    await eventually(lambda: len(begun) >= MANY // 2, "half of the crowd has waited for its turn")
    before = len(begun)
    asks(paces, good, "good", begun)
    await eventually(lambda: "good" in begun, "it has begun")
    assert begun.index("good") - before <= 1


def _has(rests: list[Connection], count: int) -> bool:
    return len(rests) == count


async def test_a_connection_rests_from_its_last_answer_on() -> None:
    async with running_gateway() as running, connected(running.address) as wire:
        await wire.send(HEALTH)
        assert (await wire.read_answer()).status == 200  # it was accepted, which counts as well
        paces: Paces = cast("Any", running.server.config.http).keywords["paces"]
        rests = list[Connection]()
        paces.rest = rests.append  # type: ignore[method-assign,assignment]  # counts
        for number in range(1, 4):
            await wire.send(HEALTH)
            assert (await wire.read_answer()).status == 200
            await eventually(partial(_has, rests, number), "it rests")
        assert len(set(rests)) == 1


async def test_after_a_rest_what_is_answered_at_once_waits_for_no_request() -> None:
    waited = list[str]()

    async with running_gateway() as running, connected(running.address) as wire:
        await running.topic()
        paces: Paces = cast("Any", running.server.config.http).keywords["paces"]
        begins = paces.requests.begin

        def noted(place: int, request: Any) -> None:
            waited.append("it")
            begins(place, request)

        paces.requests.begin = noted  # type: ignore[method-assign]  # counts
        for _ in range(3):  # the first goes the whole road, and is known from then on
            await wire.send(PUBLISH)
            assert (await wire.read_answer()).status == 200
        assert waited == ["it"]
        wire.writer.write(PUBLISH * 3)  # who asks thrice has rested once
        for _ in range(3):
            assert (await wire.read_answer()).status == 200
        assert len(waited) == 3


async def test_a_body_that_is_sent_apart_is_read_as_early_as_its_head() -> None:
    head, body = PUBLISH[: -len(b'{"k": 1}')], b'{"k": 1}'
    async with running_gateway() as running, connected(running.address) as wire:
        await running.topic()
        paces: Paces = cast("Any", running.server.config.http).keywords["paces"]
        expect, expected = paces.expect, list[bool]()

        def noted(source: Connection) -> None:
            expect(source)
            expected.append(source.descriptor in paces.rested)

        paces.expect = noted  # type: ignore[method-assign,assignment]  # the test notes calls
        await wire.send(PUBLISH)
        assert (await wire.read_answer()).status == 200
        await wire.send(head)
        await eventually(lambda: expected == [True], "the body is expected")
        await wire.send(body)
        assert (await wire.read_answer()).status == 200


async def test_a_body_in_many_pieces_is_read_early_once() -> None:
    paces = Paces()
    source = connection(paces)
    paces.answered(source, is_idle=True)
    for is_early in (True, True, False, False):
        assert (source.descriptor in paces.rested) is is_early
        paces.wake(source)
        paces.expect(source)
    begun = list[str]()
    paces.begin("/v1/topics", source, lambda: begun.append("it"), at_once=True)
    assert begun == ["it"]


async def test_who_has_not_rested_is_read_early_for_no_body() -> None:
    paces = Paces()
    source = connection(paces)
    paces.answered(source, is_idle=True)
    paces.wake(source)
    paces.begin("/v1/topics", source, lambda: None, at_once=True)
    paces.expect(source)  # the next one came in the same read
    paces.wake(source)
    paces.expect(source)
    assert not paces.rested


async def test_one_that_has_not_rested_has_its_turn_among_those_that_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of ten thousand turns, a millisecond each, 500 show as much.
    monkeypatch.setattr(admission, "REST_WORTH_MAX", 500)
    paces, begun = Paces(), list[str]()
    busy = connection(paces)
    rested = [connection(paces) for _ in range(MANY)]
    await settle(paces)

    def one_more(number: int) -> None:
        begun.append("rested")
        asyncio.get_running_loop().call_soon(COMPUTE.spend, TURN_S)
        if "busy" not in begun:
            paces.begin("/v1/topics", rested[number % MANY], partial(one_more, number + 1))

    one_more(0)
    paces.rest(busy)
    asks(paces, busy, "busy", begun)
    await eventually(lambda: "busy" in begun, "it has begun")
    assert 500 <= begun.index("busy") < 600


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
