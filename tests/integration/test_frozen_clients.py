"""Clients that do not read, one for each queue policy, and what each finds when it reads on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import psutil
import pytest

from tests.support.children import ended, serving
from tests.support.clocks.stopwatch import Stopwatch
from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Remote, Stream, client_of, running_gateway
from tests.support.sessions import attached, opened, subscribed
from tidegate.clients.sse import Event

POLICIES = ("conflate", "always", "unsubscribe", "off")
KEYS = 20
IN_MEMORY = 1_500
FILLING = 6_000  # of each policy: after these, whatever has a bound has reached it
MESSAGES = 12_000
AT_ONCE = 100
QUEUE_MESSAGES_MAX = 200
PAD = "x" * 1_000
HISTORY = {"messages": 1_000}
END_S_MAX = 3.0
# Long enough that nobody is cut for being frozen.
PATIENT = {
    "TIDEGATE_QUEUE_MESSAGES_MAX": str(QUEUE_MESSAGES_MAX),
    "TIDEGATE_WRITE_TIMEOUT": "10m",
    "TIDEGATE_SESSION_RETENTION": "5m",
}
# A quarter of the bytes that come when all is full: the allocator's unrest, and no queue.
RESIDENT_GROWTH_MAX = len(POLICIES) * (MESSAGES - FILLING) * len(PAD) // 4


class Client:
    """A subscriber to every message of one topic; it reads only when a test asks for it."""

    def __init__(
        self, remote: Remote, policy: str, session: str, stream: Stream, messages: int
    ) -> None:
        self.messages = messages  # that are published while it reads nothing
        self.policy = policy
        self.session = session
        self.versions: list[int] = []
        self.newest: dict[int, int] = {}
        self.goodbye: dict[str, Any] | None = None
        self.named = 0  # versions up to the last event with an id
        self._named_by = ""
        self._remote = remote
        self._stream = stream

    async def next(self) -> Event:
        """The next event, its rows noted: none is older than what was there of its key."""
        event = await self._stream.next()
        self._note(event)
        return event

    async def until(self, name: str) -> dict[str, Any]:
        """Read up to an event of this name; what it says."""
        while (event := await self.next()).name != name:
            pass
        fields: dict[str, Any] = json.loads(event.text)
        return fields

    async def until_newest(self, last: int) -> None:
        """Read until it has of every key what was published last."""
        newest = {version % KEYS: version for version in range(last - KEYS + 1, last + 1)}
        async with asyncio.timeout(LOOPS_S):
            while self.newest != newest:
                await self.next()

    async def rest(self) -> list[str]:
        """Read to the end, orderly or not; the names of what is not rows."""
        names = []
        # A connection that is cut ends with a reset, or with its answer incomplete.
        with contextlib.suppress(StopAsyncIteration, httpx2.ReadError, httpx2.RemoteProtocolError):
            while True:
                names.append((await self.next()).name)
        return [name for name in names if name != "message"]

    @property
    def last_id(self) -> str:
        return self._stream.last_id

    async def view(self) -> dict[str, Any]:
        shown: dict[str, Any] = (await self._remote.http.get(f"/v1/sessions/{self.session}")).json()
        return shown

    def _note(self, event: Event) -> None:
        if event.name == "goodbye":
            self.goodbye = json.loads(event.text)
        if event.name != "message":
            return
        for row in json.loads(event.text)["rows"]:
            key, version = row["value"]["k"], row["value"]["v"]
            assert version > self.newest.get(key, -1), f"{self.policy}: an older one of its key"
            self.newest[key] = version
            self.versions.append(version)
        if self.last_id != self._named_by:
            self._named_by, self.named = self.last_id, len(self.versions)


@contextlib.asynccontextmanager
async def frozen_client(remote: Remote, policy: str, messages: int) -> AsyncIterator[Client]:
    """It has read `hello`."""
    await remote.topic(policy, conflation=policy, history=HISTORY)
    session = await opened(remote)
    await subscribed(remote, session, topic=policy, options="conflation=none", command="subscribe")
    async with attached(remote, session) as stream:
        yield Client(remote, policy, session, stream, messages)


async def published(remote: Remote, policy: str, first: int, count: int) -> int:
    """Publish versions of the keys in turn; the last version."""
    for start in range(first, first + count, AT_ONCE):
        versions = range(start, min(start + AT_ONCE, first + count))
        await remote.publish(*[{"k": v % KEYS, "v": v, "pad": PAD} for v in versions], topic=policy)
    return first + count - 1


async def delivered(client: Client, count: int) -> None:
    """Wait until its only subscription has handed over so many rows."""
    async with asyncio.timeout(LOOPS_S):
        while (await client.view())["subscriptions"][0]["delivered"] < count:
            await asyncio.sleep(0.01)


async def shown_as(client: Client, state: str) -> dict[str, Any]:
    """Wait until its session stands so, as anybody sees it who asks."""
    async with asyncio.timeout(LOOPS_S):
        while (shown := await client.view())["state"] != state:
            await asyncio.sleep(0.01)
    return shown


def resident_bytes(process: Process) -> int:
    return int(psutil.Process(process.pid).memory_info().rss)


async def test_what_each_policy_leaves_a_client_that_does_not_read() -> None:
    patient = {"queue_messages_max": QUEUE_MESSAGES_MAX, "write_timeout": "10m"}
    async with (
        running_gateway(session_retention="5m", **patient) as running,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(frozen_client(running, policy, IN_MEMORY))
            for policy in POLICIES
        ]
        for policy in POLICIES:
            await published(running, policy, 0, IN_MEMORY)
        await each_finds_what_its_policy_leaves(running, *clients)


async def each_finds_what_its_policy_leaves(
    remote: Remote, conflate: Client, always: Client, unsubscribe: Client, off: Client
) -> None:
    for client in (conflate, always):
        await finds_the_newest(client)
    await is_unsubscribed_and_comes_back(remote, unsubscribe)
    await has_an_unbroken_prefix_and_the_reason(remote, off)


@pytest.mark.nightly
async def test_four_frozen_clients_of_a_process() -> None:
    """They cost a bounded amount of memory, and hold no shutdown up."""
    async with (
        serving(**PATIENT) as (process, address),
        client_of(address) as remote,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = {
            policy: await stack.enter_async_context(frozen_client(remote, policy, MESSAGES))
            for policy in POLICIES
        }
        for policy, client in clients.items():
            await published(remote, policy, 0, KEYS)
            await delivered(client, KEYS)  # before its queue can be full
        await asyncio.gather(
            *(published(remote, policy, KEYS, FILLING - KEYS) for policy in POLICIES)
        )
        full_bytes = resident_bytes(process)
        lasts = await asyncio.gather(
            *(published(remote, policy, FILLING, MESSAGES - FILLING) for policy in POLICIES)
        )
        assert set(lasts) == {MESSAGES - 1}
        assert resident_bytes(process) - full_bytes < RESIDENT_GROWTH_MAX

        await each_finds_what_its_policy_leaves(remote, *clients.values())
        assert resident_bytes(process) - full_bytes < RESIDENT_GROWTH_MAX

        for policy in POLICIES:  # they are frozen again
            await published(remote, policy, 2 * MESSAGES, MESSAGES // 10)
        with Stopwatch(process.pid) as watch:
            process.send_signal(signal.SIGTERM)
            status, logged = await ended(process)
        assert watch.taken_s < END_S_MAX
        assert status == 0
        assert "Traceback" not in logged


async def finds_the_newest(client: Client) -> None:
    await client.until_newest(client.messages - 1)
    assert len(client.versions) < client.messages / 2, "most were never queued"
    shown = await client.view()
    [subscription] = shown["subscriptions"]
    assert subscription["matched"] == client.messages
    assert subscription["delivered"] == len(client.versions)
    assert subscription["conflated"] == client.messages - len(client.versions)
    assert (subscription["dropped"], subscription["waiting"]) == (0, 0)
    assert (shown["state"], shown["queue"]["messages"]) == ("attached", 0)


async def is_unsubscribed_and_comes_back(remote: Remote, client: Client) -> None:
    """What was sent before is whole, the rest is gone, and no end is sent twice."""
    fields = await client.until("unsubscribed")
    assert (fields["topic"], fields["reason"]) == ("unsubscribe", "BACK_PRESSURE")
    assert client.versions == list(range(len(client.versions)))
    assert 0 < len(client.versions) < client.messages
    assert (await client.view())["subscriptions"] == []
    await subscribed(
        remote, client.session, topic="unsubscribe", options="conflation=none", command="subscribe"
    )
    assert (await client.until("subscribed"))["topic"] == "unsubscribe"
    last = await published(remote, "unsubscribe", client.messages, KEYS)
    names = []
    while client.newest.get(last % KEYS) != last:
        names.append((await client.next()).name)
    assert set(names) == {"message"}


async def has_an_unbroken_prefix_and_the_reason(remote: Remote, client: Client) -> None:
    """The reason stands where it can be asked for: a socket that is full takes no goodbye.

    But for one whose kernel finds room behind all the rest within the second that is given.
    """
    shown = await shown_as(client, "away")
    assert shown["reason"] == "MESSAGE_QUEUE_LIMIT_REACHED"
    assert await client.rest() in (["resumed"], ["resumed", "goodbye"]), "as it said at first"
    if client.goodbye is not None:
        assert client.goodbye["reason"] == shown["reason"]
    assert client.versions == list(range(len(client.versions)))
    assert 0 < len(client.versions) < client.messages
    async with attached(remote, client.session, client.last_id) as again:
        resumed = json.loads((await again.until("resumed"))[-1].text)
        assert resumed["closed"] == "MESSAGE_QUEUE_LIMIT_REACHED"
        # Rows of a piece that left more behind have no id, so they are counted again.
        unnamed = len(client.versions) - client.named
        assert resumed["gap_messages"] == client.messages - len(client.versions) + unnamed
        assert unnamed < AT_ONCE
