"""Streams that are compressed, because their clients take gzip."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.outside import require_curl
from tidegate.app.delivery import fanout
from tidegate.clients.sse import Event, Parser

pytestmark = pytest.mark.usefixtures("steady", "both_forms")

SUBSCRIBE = "/v1/topics/px/subscribe"
PAD = "x" * 1_000


class Compressed:
    """A stream that is decoded as it comes, and as a browser does: piece by piece."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.raw = bytearray()
        self.text = bytearray()
        self._chunks = answer.aiter_raw()
        self._decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        self._parser = Parser()
        self._ahead: list[Event] = []

    async def until(self, name: str) -> Event:
        """Read up to the first event of this name."""
        async with asyncio.timeout(HANGS_S):
            while True:
                while self._ahead:
                    event = self._ahead.pop(0)
                    if event.name == name:
                        return event
                chunk = await anext(self._chunks)
                self.raw += chunk
                text = self._decoder.decompress(chunk)
                self.text += text
                self._ahead += self._parser.feed(text)


@asynccontextmanager
async def compressed(running: Running, **params: str) -> AsyncIterator[Compressed]:
    headers = {"Accept-Encoding": "br, gzip;q=0.8"}
    async with running.http.stream("GET", SUBSCRIBE, params=params, headers=headers) as answer:
        yield Compressed(answer)


async def test_a_client_that_takes_gzip_gets_the_same_events() -> None:
    async with running_gateway() as running:
        await running.topic()
        options = {"options": "conflation=20ms", "command": "subscribe"}
        async with compressed(running, **options) as stream, compressed(running, **options) as late:
            assert stream.answer.headers["content-encoding"] == "gzip"
            assert stream.answer.headers["vary"] == "Accept-Encoding"
            await stream.until("hello")
            await late.until("hello")
            for number in range(3):
                await running.publish({"k": 1, "n": number, "pad": PAD})
                for each in (stream, late):
                    event = await each.until("message")
                    assert json.loads(event.text) == {"k": 1, "n": number, "pad": PAD}
            assert len(stream.raw) < len(stream.text)


async def test_one_that_joins_late_decodes_the_flushes_that_all_share(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    made: list[bytes] = []
    shared_chunk = fanout.shared_chunk

    def counted(text: bytes, *, is_gzip: bool) -> fanout.SharedChunk:
        made.append(text)
        return shared_chunk(text, is_gzip=is_gzip)

    monkeypatch.setattr(fanout, "shared_chunk", counted)
    async with running_gateway() as running:
        await running.topic()
        options = {"options": "conflation=20ms", "command": "subscribe"}
        async with compressed(running, **options) as first:
            await first.until("hello")
            await running.publish({"k": 1, "n": 0, "pad": PAD})
            await first.until("message")
            async with compressed(running, **options) as second:
                await second.until("hello")
                made.clear()
                await running.publish({"k": 1, "n": 1, "pad": PAD})
                assert json.loads((await second.until("message")).text)["n"] == 1
                assert json.loads((await first.until("message")).text)["n"] == 1
                if "socket" in request.node.name:  # the other form makes each its own
                    assert len(made) == 1


async def test_its_end_has_the_checksum_of_everything() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "pad": PAD}, {"k": 2, "pad": PAD})
        async with compressed(running, command="sow") as stream:
            async with asyncio.timeout(HANGS_S):
                whole = b"".join([chunk async for chunk in stream.answer.aiter_raw()])
        events = Parser().feed(gzip.decompress(whole))
        assert [event.name for event in events][-2:] == ["group_end", "goodbye"]


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "gzip;q=0.0, *", "br"])
async def test_other_clients_get_the_text(accepted: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        headers = {"Accept-Encoding": accepted}
        async with running.http.stream("GET", SUBSCRIBE, headers=headers) as answer:
            assert "content-encoding" not in answer.headers
            assert answer.headers["vary"] == "Accept-Encoding"
            assert (await anext(answer.aiter_raw())).startswith(b"event: hello")


async def test_heartbeats_of_a_compressed_stream_are_comments() -> None:
    async with running_gateway(heartbeat="100ms") as running:
        await running.topic()
        async with compressed(running, command="subscribe") as stream:
            await stream.until("hello")
            await running.publish({"k": 1})
            await stream.until("message")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await stream.until("message")
            assert re.search(rb"(: heartbeat\n\n){2}$", stream.text)


async def test_curl_decodes_it() -> None:
    curl = require_curl()
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "pad": PAD})
        url = f"{running.address}{SUBSCRIBE}?command=sow"
        command = [curl, "--silent", "--compressed", "--max-time", "60", url]
        process = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        names = [event.name for event in Parser().feed(process.stdout)]
        assert names[0] == "hello"
        assert names[-1] == "goodbye"
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "it left")
