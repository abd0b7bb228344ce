"""The post: questions are answered once, in time, or reported as unanswered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import eventually
from tests.support.rules import rule
from tidegate.app.cluster import membership as rolls
from tidegate.app.cluster import peer_messages as posts
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.membership import Membership
from tidegate.app.cluster.peer_messages import PeerMessage, PeerMessages, PeerService
from tidegate.app.refusals import Refused, Unavailable

pytestmark = pytest.mark.redis
runs = itertools.count()


class Gateway:
    """One that counts what it is asked, and says it back."""

    def __init__(self, bus: BusConnection, name: str) -> None:
        self.bus = bus
        self.roll = Membership(bus, name)
        self.asked: list[bytes] = []
        self.hold = asyncio.Event()
        self.hold.set()
        services: dict[str, PeerService] = {"echo": self.echo, "fail": self.fail}
        self.post = PeerMessages(bus, self.roll, services)

    async def echo(self, body: bytes) -> bytes:
        self.asked.append(body)
        await self.hold.wait()
        return b"<" + body + b">"

    async def fail(self, body: bytes) -> bytes:
        raise RuntimeError("on purpose")

    async def put(self, letter: PeerMessage) -> None:
        inbox = self.bus.shared_key("inbox", self.roll.gateway)
        await self.bus.execute("RPUSH", inbox, msgspec.msgpack.encode(letter))


@pytest.fixture
async def bus(redis_url: str) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_url, f"post-test-{next(runs)}")
    yield made
    await made.aclose()


@contextlib.asynccontextmanager
async def gateways(bus: BusConnection, *named: str) -> AsyncIterator[list[Gateway]]:
    made = [Gateway(bus, name) for name in named]
    for each in made:
        await each.roll.heartbeat()
    tasks = [asyncio.create_task(each.post.run()) for each in made]
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in made:
        await each.post.aclose()


async def test_a_question_is_answered(bus: BusConnection) -> None:
    async with gateways(bus, "one", "two") as (one, two):
        answers = await asyncio.gather(
            *(one.post.request("two", "echo", str(n).encode(), HANGS_S) for n in range(300)),
            two.post.request("one", "echo", b"back"),
            one.post.request("one", "echo", b"own"),
        )
        assert answers == [*(f"<{n}>".encode() for n in range(300)), b"<back>", b"<own>"]


@rule("cluster-10")
async def test_a_letter_that_comes_twice_is_heeded_once(bus: BusConnection) -> None:
    async with gateways(bus, "one", "two") as (one, two):
        letter = PeerMessage("x-1", "one", "echo", b"once", two.bus.clock.now_ms() + 60_000)
        await two.put(letter)
        await two.put(letter)
        assert await one.post.request("two", "echo", b"then") == b"<then>"
        assert two.asked == [b"once", b"then"]


async def test_a_letter_whose_fate_is_unknown_is_sent_again(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(bus, "one", "two") as (one, two):
        put, losses = one.post._enqueue, [True]

        async def lossy(gateway: str, letter: PeerMessage) -> bool:
            taken = await put(gateway, letter)
            if losses and losses.pop():
                raise Unavailable("The answer is lost.")
            return taken

        monkeypatch.setattr(one.post, "_enqueue", lossy)
        assert await one.post.request("two", "echo", b"once") == b"<once>"
        assert await one.post.request("two", "echo", b"then") == b"<then>"
        assert two.asked == [b"once", b"then"]


async def test_whose_time_is_up_is_not_heeded(bus: BusConnection) -> None:
    async with gateways(bus, "one", "two") as (one, two):
        due_ms = bus.clock.now_ms() + 60_000
        await two.put(PeerMessage("x-1", "one", "echo", b"late", bus.clock.now_ms() - 1))
        await two.put(PeerMessage("x-2", "one", "nothing", b"unknown", due_ms))
        await bus.execute("RPUSH", bus.shared_key("inbox", "two"), b"\xc1")
        assert await one.post.request("two", "echo", b"then") == b"<then>"
        assert two.asked == [b"then"]


@pytest.mark.parametrize("whom", ["three", "two"])
async def test_nobody_waits_for_ever(bus: BusConnection, whom: str) -> None:
    async with gateways(bus, "one", "two") as (one, _):
        with pytest.raises(Refused, match="bus-unavailable"):
            await one.post.request(whom, "fail", b"", timeout_s=0.05)
        assert await one.post.request("two", "echo", b"then") == b"<then>"


async def test_an_inbox_is_bounded(bus: BusConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "INBOX_MAX", 2)
    inbox = bus.shared_key("inbox", "gone")
    async with gateways(bus, "one") as [one]:
        while await bus.execute("LLEN", inbox) < 2:  # one that is not sent in time is not there
            with pytest.raises(Refused, match="in time"):
                await one.post.request("gone", "echo", b"", timeout_s=0.01)
        with pytest.raises(Refused, match="overloaded"):
            await one.post.request("gone", "echo", b"", HANGS_S)
        assert await bus.execute("LLEN", inbox) == 2
        assert 0 < await bus.execute("PTTL", inbox) <= posts.INBOX_MS


async def test_no_more_is_answered_at_once_than_may_be(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posts, "HANDLED_AT_ONCE", 1)
    async with gateways(bus, "one", "two") as (one, two):
        two.hold.clear()
        first = asyncio.create_task(one.post.request("two", "echo", b"first", HANGS_S))
        while not two.asked:
            await asyncio.sleep(0)
        with pytest.raises(Refused, match="in time"):
            await one.post.request("two", "echo", b"second", timeout_s=0.1)
        # The clock of the sender names the moment; that of the receiver may differ from it by half
        # a round trip to Redis.
        late_ms = one.bus.clock.now_ms()
        while two.bus.clock.now_ms() <= late_ms:
            await asyncio.sleep(0)
        two.hold.set()
        assert await first == b"<first>"
        assert two.asked == [b"first"]


@rule("cluster-3")
async def test_a_bus_that_is_out_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(posts, "RETRY_S", 0.001)
    monkeypatch.setattr(rolls, "HEARTBEAT_S", 0.001)
    caplog.set_level("DEBUG", "tidegate.bus")
    lost = BusConnection("unix:///nowhere/bus.sock")
    roll = Membership(lost, "one")
    running = [asyncio.create_task(it) for it in (PeerMessages(lost, roll, {}).run(), roll.run())]
    await eventually(lambda: tries(caplog, "reading the inbox") > 5, "it is tried again and again")
    await eventually(lambda: tries(caplog, "the heartbeat") > 5, "it is tried again and again")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    shown = sorted(it.message.partition(":")[0] for it in caplog.records if it.levelname != "DEBUG")
    assert shown == ["reading the inbox failed", "the heartbeat failed"]


def tries(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(record.message.startswith(words) for record in caplog.records)


async def test_without_a_bus_a_request_fails_at_once() -> None:
    lost = BusConnection("unix:///nowhere/bus.sock")
    with pytest.raises(Refused, match="bus-unavailable"):
        await PeerMessages(lost, Membership(lost, "one"), {}).request("two", "echo", b"")
