"""When freed memory is given back to the system."""

import asyncio
import contextlib
import gc
import gzip
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence

import pytest

from tests.support.gateways import eventually, running_gateway
from tests.support.manual_driver import ManualDriver
from tests.support.wire import connected, exchange, get
from tidegate.app.http.exchange import Exchange
from tidegate.app.http.protocol import GatewayProtocol
from tidegate.app.memory import (
    ENDED_MIN,
    FULL_COLLECTION_EVERY,
    MIDDLE_COLLECTION_EVERY,
    YOUNG_OBJECTS,
    MemoryReclaimer,
    collect_and_give_back,
    configure_collector,
)
from tidegate.app.streams.connection import Connection
from tidegate.app.streams.socket_stream import SocketStream


def reclaimed_at(counts: Sequence[tuple[int, int]]) -> list[int]:
    """The checks, counted from 0, at which memory is reclaimed."""
    reclaimed: list[int] = []
    memory = MemoryReclaimer(lambda: reclaimed.append(number))
    for number in range(len(counts)):
        memory.check(*counts[number])
    return reclaimed


@pytest.mark.parametrize(
    ("counts", "at"),
    [
        pytest.param([(0, 0), (1_000, 0), (1_000, 0)], [], id="nobody-leaves"),
        pytest.param(
            [(1_000, 0), (600, 400), (9, 991), (9, 991), (9, 991)], [3], id="once-all-have-left"
        ),
        pytest.param(
            [(1_000, 0), (600, 400), (700, 400), (500, 600), (500, 600)], [2, 4], id="each-crowd"
        ),
        pytest.param([(ENDED_MIN, 0), (1, 99), (1, 99)], [], id="not-for-a-few"),
        pytest.param([(ENDED_MIN, 0), (0, 100), (0, 100)], [2], id="for-enough"),
        pytest.param([(1_000, 240), (1_000, 249), (1_000, 250)], [2], id="by-and-by"),
        pytest.param([(10_000, 0), (9_000, 2_000), (9_000, 2_000)], [], id="less-than-a-quarter"),
    ],
)
def test_memory_is_reclaimed_once_many_have_left(
    counts: Sequence[tuple[int, int]], at: list[int]
) -> None:
    assert reclaimed_at(counts) == at


def test_asking_does_no_harm() -> None:
    collect_and_give_back()


def test_what_the_start_has_created_is_never_visited() -> None:
    thresholds, state = gc.get_threshold(), [["kept"]]
    try:
        configure_collector()
        assert not any(found is state for found in gc.get_objects())
        assert gc.get_threshold() == (
            YOUNG_OBJECTS,
            MIDDLE_COLLECTION_EVERY,
            FULL_COLLECTION_EVERY,
        )
    finally:
        gc.set_threshold(*thresholds)


BOARDS: tuple[dict[str, str], ...] = (
    {},
    {"wanted": "/v > 0"},
    {"options": "top_n=2", "order": "/v"},
    {"options": "projection=[/k,SUM(/v) AS /v],grouping=[/k]"},
    {"options": "conflation=1s,receipt"},
    {"options": "bookmark=epoch,conflation=1s,reduce=[/v:sum]", "command": "subscribe"},
)


@pytest.mark.parametrize("records_max", [None, 2])
def test_a_topic_that_is_gone_waits_for_no_collector(records_max: int | None) -> None:
    """Also one whose boards are being built, or whose rows are being made."""
    made = ManualDriver(items_at_once=records_max)
    with without_the_collector():
        made.topic()
        made.publish("aX1 bX2 cX3 dX4")
        for number, asked in enumerate(BOARDS):
            made.subscribe(
                asked.get("options", ""),
                command=asked.get("command", "sow_and_subscribe"),
                wanted=asked.get("wanted", ""),
                order=asked.get("order", ""),
                session=f"s{number}",
            )
        made.engine.open_step(made.now)
        topic = weakref.ref(made.engine.topic("px"))
        made.engine.drop_topic("px")
        while made.engine.has_openings:
            made.engine.open_step(made.now)
        assert topic() is None


REFUSED = 40
BODY_BYTES = 58_000  # less than one read of a socket takes
COMPRESSED = gzip.compress(b" " * (1_000 * BODY_BYTES))
BROKEN = b'{"k":,' + b" " * BODY_BYTES


@contextlib.contextmanager
def without_the_collector() -> Iterator[None]:
    """Collections of the whole heap are rare, so what waits for one counts as used."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Count what is allocated and still held."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def posted(body: bytes, *fields: bytes) -> bytes:
    """A request that publishes to a topic."""
    head = [
        b"POST /v1/topics/px/messages HTTP/1.1", b"Host: localhost",
        b"Content-Type: application/json", b"Content-Length: %d" % len(body), *fields,
    ]  # fmt: skip
    return b"\r\n".join([*head, b"", body])


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        pytest.param(posted(COMPRESSED, b"Content-Encoding: gzip"), 415, id="compressed"),
        pytest.param(posted(BROKEN), 400, id="broken"),
    ],
)
async def test_a_refused_request_leaves_nothing_of_its_body(
    request_text: bytes, status: int
) -> None:
    async with running_gateway() as running:
        await running.topic()
        cut = request_text.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        await exchange(running.address, cut)  # what the first one loads stays
        with without_the_collector(), traced():
            before_bytes, _ = tracemalloc.get_traced_memory()
            for _ in range(REFUSED):
                assert (await exchange(running.address, cut)).status == status
            await asyncio.sleep(0)
            held_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
        assert held_bytes < REFUSED * BODY_BYTES / 4


async def test_an_idle_connection_keeps_no_body_that_was_not_read() -> None:
    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        request = posted(COMPRESSED, b"Content-Encoding: gzip")
        wires = [await stack.enter_async_context(connected(running.address)) for _ in range(10)]
        for wire in wires:
            await wire.send(request)
            assert (await wire.read_answer()).status == 415
        with traced():
            before_bytes, _ = tracemalloc.get_traced_memory()
            for wire in wires:
                await wire.send(request)
                assert (await wire.read_answer()).status == 415
            held_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
        assert held_bytes < len(wires) * BODY_BYTES / 4


@pytest.mark.parametrize(
    "first", [b"GET /v1/topics HTTP/1.1", b"GET /v1/topics/px/subscribe HTTP/1.1"]
)
async def test_of_a_connection_that_has_ended_only_its_transport_waits_for_a_collection(
    first: bytes,
) -> None:
    """asyncio's transport refers to itself; nothing of the gateway's may wait with it."""
    kinds = (Connection, Exchange, GatewayProtocol, SocketStream)

    def count() -> int:
        return sum(isinstance(found, kinds) for found in gc.get_objects())

    async with running_gateway() as running:
        await running.topic()
        before = count()
        with without_the_collector():
            async with connected(running.address) as wire:
                await wire.send(get(first=first))
                await wire.read_until(b"\r\n\r\n")
                assert count() > before
            await eventually(lambda: count() == before, "all of it is freed")
