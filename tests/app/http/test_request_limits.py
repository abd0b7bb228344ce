"""A limited number of requests begin in each event-loop iteration, and connections take turns."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, cast

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.wire import Wire, connected, get
from tidegate.app.http.admission import BEGUN_MAX, IterationLimit, RequestLimits
from tidegate.app.http.wire import PIPELINE_MAX

MANY = 20
STORM = 200
SUBSCRIBE = get(first=b"GET /v1/topics/px/subscribe?command=subscribe HTTP/1.1")
HEALTH = get(first=b"GET /healthz HTTP/1.1")
LIST = get(first=b"GET /v1/topics HTTP/1.1")
PUBLISH = (
    get(
        b"Content-Type: application/x-ndjson",
        b"Content-Length: 7",
        first=b"POST /v1/topics/px/messages HTTP/1.1",
    )
    + b'{"k":1}'
)


async def iterations(limit: IterationLimit, begun: list[int]) -> list[list[int]]:
    """What has begun by now, and in each iteration until nothing waits."""
    found = [[*begun]]
    begun.clear()
    async with asyncio.timeout(HANGS_S):
        while len(limit):
            await asyncio.sleep(0)
            found.append([*begun])
            begun.clear()
    return found


async def connections(stack: contextlib.AsyncExitStack, running: Running, count: int) -> list[Wire]:
    """So many connections, which the server has accepted."""
    before = running.server.figures.connections
    made = [await stack.enter_async_context(connected(running.address)) for _ in range(count)]
    await eventually(
        lambda: running.server.figures.connections == before + count, "all are accepted"
    )
    return made


async def test_a_limited_number_begins_in_each_iteration_in_order() -> None:
    limit, begun = IterationLimit(), list[int]()
    for number in range(2 * BEGUN_MAX + 1):
        limit.begin(lambda number=number: begun.append(number))  # type: ignore[misc]  # a default for the loop's number
    assert len(limit) == BEGUN_MAX + 1
    found = await iterations(limit, begun)
    assert [len(each) for each in found] == [BEGUN_MAX, BEGUN_MAX, 1]
    assert [number for each in found for number in each] == [*range(2 * BEGUN_MAX + 1)]


async def test_a_request_that_may_take_long_is_the_last_of_its_iteration() -> None:
    limit, begun = IterationLimit(), list[int]()

    def begin(number: int) -> None:
        begun.append(number)
        if number % 2:
            limit.exhaust()

    for number in range(6):
        limit.begin(partial(begin, number))
    assert await iterations(limit, begun) == [[0, 1], [2, 3], [4, 5]]


async def test_a_request_that_comes_alone_begins_at_once() -> None:
    limit, begun = IterationLimit(), list[int]()
    for number in range(MANY):
        limit.begin(lambda: begun.append(1))
        assert len(begun) == number + 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_requests_that_come_alone_share_an_iteration_that_renews_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One for each would cost a client that asks in step a tenth of its request."""
    renewed: list[IterationLimit] = []
    renew = IterationLimit._renew

    def counted(limit: IterationLimit) -> None:
        renewed.append(limit)
        renew(limit)

    monkeypatch.setattr(IterationLimit, "_renew", counted)
    limit, begun = IterationLimit(), list[int]()
    for _ in range(2 * BEGUN_MAX):
        limit.begin(lambda: begun.append(1))
        await asyncio.sleep(0)
    assert (len(begun), len(renewed)) == (2 * BEGUN_MAX, 2)


async def test_a_request_that_fails_keeps_no_other_waiting() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    limit, begun = IterationLimit(), list[int]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for _ in range(BEGUN_MAX):
        with contextlib.suppress(OSError):
            limit.begin(fail)
    limit.begin(lambda: begun.append(1))
    assert [1] in await iterations(limit, begun)


async def test_connections_that_pipeline_take_turns() -> None:
    """Each begins its next request once the one before is answered, here at once."""
    limit, begun = IterationLimit(), list[int]()

    def ask(source: int, left: int) -> None:
        begun.append(source)
        if left:
            limit.begin(lambda: ask(source, left - 1))

    for source in range(3):
        limit.begin(lambda source=source: ask(source, 9))  # type: ignore[misc]  # a default for the loop's number
    found = [source for each in await iterations(limit, begun) for source in each]
    assert [found.count(source) for source in range(3)] == [10, 10, 10]
    later = found[found.index(2) :]  # all three ask from here on
    counts = [later[:9].count(source) for source in range(3)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/v1/topics/px/messages", "publishes"),
        ("GET", "/v1/topics/px/messages", "others"),
        ("GET", "/v1/topics/px/subscribe", "openings"),
        ("GET", "/v1/sessions/s/events", "openings"),
        ("GET", "/healthz", "others"),
    ],
)
def test_each_kind_has_a_limit_of_its_own(method: str, path: str, kind: str) -> None:
    limits = RequestLimits()
    assert limits.limit_of(method, path) is getattr(limits, kind)


async def test_fewer_connections_are_accepted_while_openings_wait() -> None:
    """Those that wait have a parser and a buffer each: a storm's worth of memory."""
    async with running_gateway() as running:
        (listener,) = running.server.servers[0].sockets
        acceptor = cast("Any", listener)._sock
        assert acceptor.crowd() == 0
        limits: RequestLimits = cast("Any", running.server.config.http).keywords["request_limits"]
        for _ in range(BEGUN_MAX + 3):
            limits.openings.begin(lambda: None)
        assert acceptor.crowd() == len(limits.openings) > 0


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


async def test_pipelined_requests_of_some_leave_the_gateway_to_others() -> None:
    """A request waits for at most one of each connection, not for all that they have sent."""
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
        assert answered - before <= 2 * MANY < MANY * PIPELINE_MAX / 2
        await asyncio.gather(*readers)


@pytest.mark.parametrize(
    ("more", "is_last"), [((), False), ((b"Idempotency-Key: one",), True)], ids=["plain", "keyed"]
)
async def test_only_what_the_application_answers_is_the_last_of_its_iteration(
    monkeypatch: pytest.MonkeyPatch, more: tuple[bytes, ...], *, is_last: bool
) -> None:
    exhausted: list[IterationLimit] = []
    monkeypatch.setattr(IterationLimit, "exhaust", lambda limit: exhausted.append(limit))
    async with running_gateway() as running, connected(running.address) as wire:
        await running.topic()
        await wire.send(PUBLISH)
        assert (await wire.read_answer()).status == 200
        exhausted.clear()
        head = PUBLISH.replace(b"\r\n\r\n", b"\r\n".join((b"", *more, b"", b"")))
        await wire.send(head)
        assert (await wire.read_answer()).status == 200
        assert bool(exhausted) is is_last
