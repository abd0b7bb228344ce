"""What an idle stream keeps: a few objects of its own, and nothing of its request."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator

from tests.support.gateways import Running, running_gateway
from tests.support.wire import Wire, connected, get

SUBSCRIBE = get(first=b"GET /v1/topics/px/subscribe?command=subscribe HTTP/1.1")
STREAMS = 40
OURS = ("tidegate.", "uvicorn.")
KEPT = {
    **dict.fromkeys(("Connection", "HandedOver", "SocketStream", "EventWriter", "Heartbeat"), 1),
    **dict.fromkeys(("Reader", "Consumer"), 1),
    **dict.fromkeys(("Subscriber", "Subscribers", "Member", "Watermark"), 1),
    "Session": 2,  # what was asked for, and the engine's
}
"""The objects of a stream, by type: what equal requests ask for and are granted is not its own."""


async def streams(stack: contextlib.AsyncExitStack, running: Running) -> list[Wire]:
    found = [await stack.enter_async_context(connected(running.address)) for _ in range(STREAMS)]
    for wire in found:
        await wire.send(SUBSCRIBE)
        await wire.read_until(b"event: hello")
        await wire.read_until(b"\n\n")
    return found


@contextlib.contextmanager
def rings_kept() -> Iterator[Counter[str]]:
    """The types of the objects that only the collector frees, once the block is left."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()


def ours() -> Counter[str]:
    gc.collect()
    types = (type(each) for each in gc.get_objects())
    return Counter(each.__qualname__ for each in types if str(each.__module__).startswith(OURS))


async def test_a_request_leaves_no_ring_for_the_collector() -> None:
    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        await streams(stack, running)  # whatever is made at the first time is made
        with rings_kept() as rings:
            await streams(stack, running)
        assert not {name for name in rings if name.startswith(OURS)}


async def test_an_idle_stream_keeps_nothing_of_its_request() -> None:
    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        await streams(stack, running)
        before = ours()
        await streams(stack, running)
        more = ours() - before
    of_one = {name: count // STREAMS for name, count in more.items() if count >= STREAMS}
    assert not {name: count for name, count in of_one.items() if count > KEPT.get(name, 0)}
