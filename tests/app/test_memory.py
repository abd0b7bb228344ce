"""When freed memory is given back to the system."""

import asyncio
import contextlib
import gc
import gzip
import itertools
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence

import pytest

from tests.support.gateways import eventually, running_gateway
from tests.support.wire import connected, exchange, get
from tidegate.app.memory import (
    CROWD_MIN,
    FreedMemory,
    collect_and_give_back,
    freeze_survivors,
)
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.keys.spec import KeySpec

VISITED_MAX = 35_000  # 10 ms


def given_back_at(counts: Sequence[int]) -> list[int]:
    """The looks, counted from 0, at which memory is given back."""
    given_back: list[int] = []
    looks = itertools.count()
    memory = FreedMemory(lambda: given_back.append(next(looks)))
    for connections in counts:
        before = len(given_back)
        memory.look(connections)
        if len(given_back) == before:
            next(looks)
    return given_back


@pytest.mark.parametrize(
    ("counts", "at"),
    [
        pytest.param([0, 1_000, 1_000, 1_000], [], id="nobody-leaves"),
        pytest.param([1_000, 600, 200, 9, 9, 9], [4], id="once-all-who-leave-have-left"),
        pytest.param([1_000, 600, 700, 590, 590], [2, 4], id="once-for-each-crowd"),
        pytest.param([CROWD_MIN, 1, 1], [], id="not-for-a-few"),
        pytest.param([CROWD_MIN, 0, 0], [2], id="for-enough"),
    ],
)
def test_it_is_given_back_when_a_crowd_has_left(counts: Sequence[int], at: list[int]) -> None:
    assert given_back_at(counts) == at


def test_asking_does_no_harm() -> None:
    collect_and_give_back()


@pytest.mark.usefixtures("process")
def test_what_is_there_at_start_is_not_looked_through_when_a_crowd_has_left() -> None:
    frozen = gc.get_freeze_count()
    assert frozen > 0
    collect_and_give_back()
    assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01)


@pytest.fixture(name="process")
def process_that_serves() -> Iterator[None]:
    """The collector as a gateway has it; at the end as the tests have it."""
    thresholds, callbacks = gc.get_threshold(), gc.callbacks.copy()
    freeze_survivors()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = callbacks
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as tests/conftest.py does, or each later collection takes 0.2 s


def is_visited(state: object) -> bool:
    """Whether a full collection would look at it."""
    return any(found is state for found in gc.get_objects())


@pytest.mark.usefixtures("process")
def test_what_survives_a_full_collection_is_left_alone_from_then_on() -> None:
    state = [["kept"]]
    for generation in (0, 1):
        gc.collect(generation)
        assert is_visited(state)
    gc.collect()
    assert not is_visited(state)


@pytest.mark.usefixtures("process")
def test_full_collections_come_before_there_is_much_to_visit() -> None:
    visited_most, kept = 0, []
    for number in range(100_000):
        kept.append([number])
        if not number % 500:
            visited_most = max(visited_most, len(gc.get_objects()))
    assert 10_000 < visited_most < VISITED_MAX


def test_a_topic_that_is_gone_waits_for_no_collector() -> None:
    engine = Engine(sessions_max=1, subscriptions_max=1, opening_records_max=500)
    with without_the_collector():
        engine.define_topic("t", Definition(History(1), KeySpec.of(["/k"])), "e")
        topic = weakref.ref(engine.topic("t"))
        engine.drop_topic("t")
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
async def test_a_connection_that_has_ended_waits_for_no_collection(first: bytes) -> None:
    async with running_gateway() as running:
        await running.topic()
        before = set(running.server.server_state.connections)
        with without_the_collector():
            async with connected(running.address) as wire:
                await wire.send(get(first=b"GET /healthz HTTP/1.1"))
                assert (await wire.read_answer()).status == 200
                [protocol] = running.server.server_state.connections - before
                transport = weakref.ref(protocol.transport)
                del protocol
                await wire.send(get(first=first))
                await wire.read_until(b"\r\n\r\n")
                assert transport() is not None
            await eventually(lambda: transport() is None, "it is freed")
