"""Streams that are compressed, because their clients take gzip or zstd."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.compressed import Decoder, zstd_decompressed
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.outside import node_command, require_curl
from tests.support.rules import rule
from tidegate.app.streams import fanout
from tidegate.app.streams.compression import Coding
from tidegate.clients.sse import Event, Parser

SUBSCRIBE = "/v1/topics/px/subscribe"
PAD = "x" * 1_000
ACCEPTED = {Coding.GZIP: "br, gzip;q=0.8", Coding.ZSTD: "br, gzip;q=0.8, zstd;q=0.9"}

in_both_forms = pytest.mark.usefixtures("both_forms")
each_coding = pytest.mark.parametrize("coding", ACCEPTED)


class Compressed:
    """A stream that is decoded as it comes, and as a browser does: piece by piece."""

    def __init__(self, answer: Any, coding: Coding) -> None:
        self.answer = answer
        self.raw = bytearray()
        self.text = bytearray()
        self._chunks = answer.aiter_raw()
        self._decoder = Decoder(coding)
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
async def compressed(running: Running, coding: Coding, **params: str) -> AsyncIterator[Compressed]:
    headers = {"Accept-Encoding": ACCEPTED[coding]}
    async with running.http.stream("GET", SUBSCRIBE, params=params, headers=headers) as answer:
        yield Compressed(answer, coding)


@rule("connection-5")
@in_both_forms
@each_coding
async def test_a_client_that_takes_a_coding_gets_the_same_events(coding: Coding) -> None:
    async with running_gateway() as running:
        await running.topic()
        options = {"options": "conflation=20ms", "command": "subscribe"}
        async with (
            compressed(running, coding, **options) as stream,
            compressed(running, coding, **options) as late,
        ):
            assert stream.answer.headers["content-encoding"] == coding
            assert stream.answer.headers["vary"] == "Accept-Encoding"
            await stream.until("hello")
            await late.until("hello")
            for number in range(3):
                await running.publish({"k": 1, "n": number, "pad": PAD})
                for each in (stream, late):
                    event = await each.until("message")
                    assert json.loads(event.text) == {"k": 1, "n": number, "pad": PAD}
            assert len(stream.raw) < len(stream.text)


@each_coding
async def test_one_that_joins_late_decodes_the_flushes_that_all_share(
    coding: Coding, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bytes] = []
    shared_chunk = fanout.shared_chunk

    def counted(text: bytes, coding: Coding) -> fanout.SharedChunk:
        made.append(text)
        return shared_chunk(text, coding)

    monkeypatch.setattr(fanout, "shared_chunk", counted)
    async with running_gateway() as running:
        await running.topic()
        options = {"options": "conflation=20ms", "command": "subscribe"}
        async with compressed(running, coding, **options) as first:
            await first.until("hello")
            await running.publish({"k": 1, "n": 0, "pad": PAD})
            await first.until("message")
            async with compressed(running, coding, **options) as second:
                await second.until("hello")
                made.clear()
                await running.publish({"k": 1, "n": 1, "pad": PAD})
                assert json.loads((await second.until("message")).text)["n"] == 1
                assert json.loads((await first.until("message")).text)["n"] == 1
                assert len(made) == 1


@each_coding
async def test_it_has_an_end_of_its_coding(coding: Coding) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "pad": PAD}, {"k": 2, "pad": PAD})
        async with compressed(running, coding, command="sow") as stream:
            async with asyncio.timeout(HANGS_S):
                whole = b"".join([chunk async for chunk in stream.answer.aiter_raw()])
        # The end of gzip has a checksum of everything, which is looked at here.
        decompressed = gzip.decompress if coding is Coding.GZIP else zstd_decompressed
        events = Parser().feed(decompressed(whole))
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


@each_coding
async def test_heartbeats_of_a_compressed_stream_are_comments(coding: Coding) -> None:
    async with running_gateway(heartbeat="100ms") as running:
        await running.topic()
        async with compressed(running, coding, command="subscribe") as stream:
            await stream.until("hello")
            await running.publish({"k": 1})
            await stream.until("message")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await stream.until("message")
            assert re.search(rb"(: heartbeat\n\n){2}$", stream.text)


@each_coding
async def test_clients_of_both_codings_share_a_flush(coding: Coding) -> None:
    """Bytes of one coding never reach a stream of the other, or a plain one."""
    async with running_gateway() as running:
        await running.topic()
        options = {"options": "conflation=20ms", "command": "subscribe"}
        other = Coding.GZIP if coding is Coding.ZSTD else Coding.ZSTD
        async with (
            compressed(running, coding, **options) as first,
            compressed(running, other, **options) as second,
            running.subscribe(**options) as plain,
        ):
            await first.until("hello")
            await second.until("hello")
            for number in range(3):
                await running.publish({"k": 1, "n": number, "pad": PAD})
                texts = [(await each.until("message")).text for each in (first, second)]
                texts.append((await plain.until("message"))[-1].text)
                assert [json.loads(text)["n"] for text in texts] == [number] * 3


@pytest.mark.nightly
@pytest.mark.parametrize("accepted", ["gzip", "zstd"])
async def test_curl_decodes_it(accepted: str) -> None:
    curl = require_curl()
    version = await asyncio.to_thread(subprocess.run, [curl, "--version"], capture_output=True)
    if accepted == "zstd" and b"zstd" not in version.stdout:
        accepted = "gzip"  # a curl without zstd asks for what it has
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "pad": PAD})
        url = f"{running.address}{SUBSCRIBE}?command=sow"
        command = [curl, "--silent", "--include", "--compressed", "--max-time", "60", url]
        if accepted == "gzip":
            command += ["--header", "Accept-Encoding: gzip"]
        process = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        head, _, text = process.stdout.partition(b"\r\n\r\n")
        assert f"content-encoding: {accepted}".encode() in head.lower()
        names = [event.name for event in Parser().feed(text)]
        assert names[0] == "hello"
        assert names[-1] == "goodbye"
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "it left")


NODE = """
const answer = await fetch(process.argv[1]);
let text = "";
for await (const piece of answer.body) text += Buffer.from(piece).toString();
console.log(JSON.stringify([answer.headers.get("content-encoding"), text]));
"""


@pytest.mark.nightly
async def test_node_decodes_it() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "pad": PAD}, {"k": 2, "pad": PAD})
        url = f"{running.address}{SUBSCRIBE}?command=sow"
        command = [*node_command(), "--input-type=module", "--eval", NODE, url]
        process = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        coding, text = json.loads(process.stdout)
        assert coding in {"gzip", "zstd"}  # zstd from Node 24 on
        names = [event.name for event in Parser().feed(text.encode())]
        assert names.count("message") == 2
        assert names[-1] == "goodbye"
