"""Polled streams behind real caches: few requests arrive, and all readers converge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.app.access.test_authorization import guarded
from tests.integration.test_fronts import PATH, example, nginx_command, running_proxy
from tests.support.deadlines import HANGS_S
from tests.support.descriptors import descriptors
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.outside import require
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tests.support.tokens import grant, token_of
from tidegate.app.http.cookies import SESSION
from tidegate.app.http.routes import stream

pytestmark = pytest.mark.system

READERS = 40
CROWD = 1_100
"""More readers than nginx counts as uses of an address: 1,023."""
STREAM = "/v1/topics/px/stream"
KEYS = 20


@contextlib.contextmanager
def cache_before(address: str, folder: Path, kind: str = "nginx") -> Iterator[str]:
    """The example of `deploy/` with this test's addresses and folders; yields its address."""
    port = lasting_port()
    command = COMMANDS[kind](urlsplit(address).netloc, port, folder)
    require(shutil.which(command[0], path=PATH) is not None, f"no {kind}")
    with running_proxy(command, port, folder):
        yield f"http://127.0.0.1:{port}"


def nginx_cache_command(gateway: str, port: int, folder: Path) -> list[str]:
    """nginx, which reads the example of `deploy/` from its folder."""
    text = example(
        "nginx-cache.conf",
        {
            "127.0.0.1:8080": gateway,
            "listen 8081": f"listen 127.0.0.1:{port}",
            "/var/cache/nginx/tidegate": str(folder / "cache"),
        },
    )
    # Its workers are otherwise somebody who may not read this test's folder.
    return nginx_command(folder, text, "" if os.geteuid() else "user root;\n")


def varnish_command(gateway: str, port: int, folder: Path) -> list[str]:
    """Varnish, which compiles the example of `deploy/`."""
    host, _, number = gateway.partition(":")
    given = {'host = "127.0.0.1"': f'host = "{host}"', '"8080"': f'"{number}"'}
    (folder / "varnish.vcl").write_text(example("varnish.vcl", given))
    place = ["-a", f"127.0.0.1:{port}", "-n", str(folder / "varnish"), "-j", "none"]
    return ["varnishd", "-F", "-f", str(folder / "varnish.vcl"), *place]


COMMANDS = {"nginx": nginx_cache_command, "varnish": varnish_command}


class Reader:
    """Follows a stream through a cache, and keeps its records."""

    def __init__(self, http: httpx2.AsyncClient, headers: dict[str, str] | None = None) -> None:
        self._http = http
        self._headers = headers or {}
        self._asked = {"options": "conflation=1s", "offset": "-1"}
        self.records: dict[str, Any] = {}
        self.answers = 0

    async def follow(self) -> None:
        """Ask on and on."""
        while True:
            answer = await self._http.get(STREAM, params=self._asked, headers=self._headers)
            if answer.status_code not in (200, 204):
                await asyncio.sleep(0.2)
                continue
            self.answers += 1
            for row in [] if answer.status_code == 204 else answer.json():
                self._take(row)
            self._asked["offset"] = answer.headers["stream-next-offset"]
            self._asked["live"] = "long-poll"
            self._asked["cursor"] = answer.headers.get("stream-cursor", "0")

    def _take(self, row: dict[str, Any]) -> None:
        if "control" in row["headers"]:
            self.records.clear()
        elif row["headers"]["operation"] == "delete":
            self.records.pop(row["key"], None)
        else:
            before = self.records.get(row["key"], row["value"])
            assert before["v"] <= row["value"]["v"], "a key has gone back"
            self.records[row["key"]] = row["value"]


@contextlib.asynccontextmanager
async def readers_at(address: str, count: int) -> AsyncIterator[list[Reader]]:
    limits = httpx2.Limits(max_connections=count)
    async with httpx2.AsyncClient(base_url=address, timeout=60, limits=limits) as http:
        readers = [Reader(http) for _ in range(count)]
        tasks = [asyncio.create_task(reader.follow()) for reader in readers]
        try:
            yield readers
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
        assert not failed, failed


async def publish_for(running: Running, seconds: float) -> None:
    """Change all keys ten times a second, and remove one now and then."""
    loop = asyncio.get_running_loop()
    end_s, number = loop.time() + seconds, 0
    while loop.time() < end_s:
        number += 1
        await running.publish(*[{"k": key, "v": number} for key in range(KEYS)])
        if number % 7 == 0:
            await running.http.delete("/v1/topics/px/sow", params={"key": f"[{number % KEYS}]"})
        await asyncio.sleep(0.1)


async def await_equal(running: Running, readers: list[Reader]) -> None:
    """Wait until every reader shows the records."""
    records = {f"[{row['k']}]": row for row in await running.sow()}
    async with asyncio.timeout(30):
        while any(reader.records != records for reader in readers):
            await asyncio.sleep(0.1)


@rule("polling-2", "polling-6")
@pytest.mark.parametrize("kind", ["nginx", pytest.param("varnish", marks=pytest.mark.nightly)])
async def test_one_request_a_flush_arrives_however_many_read(kind: str, tmp_path: Path) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": key, "v": 0} for key in range(KEYS)])
        with cache_before(running.address, tmp_path, kind) as address:
            async with readers_at(address, READERS) as readers:
                await asyncio.sleep(2)
                before = running.gateway.polled.counts.requests
                answered = sum(reader.answers for reader in readers)
                await publish_for(running, 3)
                arrived = running.gateway.polled.counts.requests - before
                answered = sum(reader.answers for reader in readers) - answered
                await await_equal(running, readers)
        # Three flushes; three requests for each are allowed for.
        assert arrived <= 3 * 4
        assert answered > READERS


@pytest.fixture(name="many_sockets")
def many_sockets_fixture() -> Iterator[None]:
    """Sockets enough for a crowd of readers, here and in the cache."""
    with descriptors(2 * CROWD + 100):
        yield


@rule("polling-6")
@pytest.mark.usefixtures("many_sockets")
@pytest.mark.parametrize("kind", ["nginx", pytest.param("varnish", marks=pytest.mark.nightly)])
async def test_more_equal_requests_than_nginx_counts_are_one(kind: str, tmp_path: Path) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        offset = (await running.http.get(STREAM)).headers["stream-next-offset"]
        target = f"{STREAM}?options=conflation=1s&offset={offset}&live=long-poll"
        before = running.gateway.polled.counts.requests
        with cache_before(running.address, tmp_path, kind) as address:
            parts = urlsplit(address)
            request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            crowd = []
            for _ in range(CROWD):
                crowd.append(await asyncio.open_connection(parts.hostname, parts.port))
                crowd[-1][1].write(request.encode())
            await eventually(lambda: running.gateway.polled.positions == 1, "one waits")
            await asyncio.sleep(1)  # the others wait in the cache
            await running.publish({"k": 2})
            async with asyncio.timeout(HANGS_S):
                answers = await asyncio.gather(*(reader.read() for reader, _ in crowd))
            for _, writer in crowd:
                writer.close()
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}
        assert running.gateway.polled.counts.requests - before == 1


@rule("polling-5", "polling-6")
@pytest.mark.parametrize("kind", ["nginx", pytest.param("varnish", marks=pytest.mark.nightly)])
async def test_that_nothing_has_come_is_asked_once_for_all(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WAIT_S", 2.0)
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 0})
        with cache_before(running.address, tmp_path, kind) as address:
            async with readers_at(address, READERS) as readers:
                await asyncio.sleep(1)
                before = running.gateway.polled.counts.requests
                await asyncio.sleep(7)
                arrived = running.gateway.polled.counts.requests - before
                assert all(reader.answers >= 2 for reader in readers)
        # Four times nothing comes; readers whom the cache lets go late are allowed for.
        assert arrived <= 3 * 4


@pytest.mark.parametrize("kind", ["nginx", pytest.param("varnish", marks=pytest.mark.nightly)])
async def test_head_is_the_end_behind_a_cache_too(kind: str, tmp_path: Path) -> None:
    async with running_gateway() as running:
        await running.topic()
        for start in (0, 4_000):
            await running.publish(*[{"k": start + number} for number in range(4_000)])
        with cache_before(running.address, tmp_path, kind) as address:
            async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
                ends = {
                    answer.headers["stream-next-offset"]
                    for answer in (
                        await http.head(STREAM),
                        await running.http.head(STREAM),
                        await running.http.get(STREAM, params={"offset": "now"}),
                    )
                }
        assert len(ends) == 1


@rule("polling-6")
@pytest.mark.parametrize("kind", ["nginx", pytest.param("varnish", marks=pytest.mark.nightly)])
async def test_no_answer_of_one_subject_is_another_s(kind: str, tmp_path: Path) -> None:
    rows = {
        desk: token_of(desk, grant("read prices.>", filter=f"/desk = '{desk}'")) for desk in "ab"
    }
    root = token_of("root", "read,write,admin,observe >")
    async with guarded(tmp_path) as running:
        lines = "\n".join(f'{{"k": "{desk}", "desk": "{desk}"}}' for desk in "ab")
        headers = {**root, "Content-Type": "application/x-ndjson"}
        await running.http.post("/v1/topics/prices.eu/messages", content=lines, headers=headers)
        with cache_before(running.address, tmp_path, kind) as address:
            async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
                for number in range(200):
                    desk = "ab"[number % 2]
                    answer = await http.get("/v1/topics/prices.eu/stream", headers=rows[desk])
                    assert answer.headers["cache-control"].startswith("private")
                    found = {row["value"].get("desk") for row in answer.json()}
                    assert desk in found
                    assert "ab".replace(desk, "") not in found
                nobody = await http.get("/v1/topics/prices.eu/stream")
                assert nobody.status_code == 401


@rule("polling-6")
@pytest.mark.parametrize("kind", ["nginx", pytest.param("varnish", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("by", ["token", "cookie"])
async def test_readers_with_a_token_do_not_wait_for_each_other(
    kind: str, by: str, tmp_path: Path
) -> None:
    """Their answers are private: behind a lock, one would be asked for after the other."""
    headers = token_of("ann", "read prices.>")
    if by == "cookie":
        headers = {"Cookie": f"first=1; {SESSION}={headers['Authorization'].split()[1]}; last=1"}
    async with guarded(tmp_path) as running:
        with cache_before(running.address, tmp_path, kind) as address:
            async with httpx2.AsyncClient(base_url=address, timeout=60, headers=headers) as http:
                path = "/v1/topics/prices.eu/stream?offset=now&live=long-poll"
                asking = [asyncio.create_task(http.get(path)) for _ in range(5)]
                polled = running.gateway.polled
                await eventually(
                    lambda: sum(each.waiting for each in polled.listed()) == len(asking),
                    "all wait at the gateway",
                )
                answers = await asyncio.gather(*asking)
        assert [answer.status_code for answer in answers] == [204] * len(asking)


CANARY_REQUESTS = 100_000
CANARY_CONNECTIONS = 8


@pytest.mark.nightly
@rule("polling-6")
async def test_of_very_many_answers_none_is_of_another_subject(tmp_path: Path) -> None:
    """Each desk's rows name it; subjects of all desks ask for the same addresses at once."""
    desks = [f"desk{number}" for number in range(CANARY_CONNECTIONS)]
    root = token_of("root", "read,write,admin,observe >")
    headers = {**root, "Content-Type": "application/x-ndjson"}
    async with guarded(tmp_path) as running:

        async def publish() -> None:
            for number in range(1_000_000):
                rows = "\n".join(f'{{"k":"{desk}","desk":"{desk}","n":{number}}}' for desk in desks)
                path = "/v1/topics/prices.eu/messages"
                answer = await running.http.post(path, content=rows, headers=headers)
                assert answer.status_code == 200, answer.text
                await asyncio.sleep(0.2)

        with cache_before(running.address, tmp_path) as address:
            publishing = asyncio.create_task(publish())
            try:
                asked = CANARY_REQUESTS // len(desks)
                await asyncio.gather(*(ask_as(address, desk, asked) for desk in desks))
            finally:
                publishing.cancel()
        assert not publishing.done() or publishing.cancelled()


async def ask_as(address: str, desk: str, requests: int) -> None:
    """Ask from the beginning and from the next position, and look for rows of other desks."""
    token = token_of(desk, grant("read prices.>", filter=f"/desk = '{desk}'"))
    fields = "".join(f"{name}: {value}\r\n" for name, value in token.items())
    parts = urlsplit(address)
    offset = "-1"
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
    for number in range(requests):
        target = f"/v1/topics/prices.eu/stream?offset={offset}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        answer = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        body = await reader.readexactly(int(answer["content-length"]))
        assert head.startswith("http/1.1 200"), head
        assert answer["cache-control"].startswith("private"), head
        found = {row["value"]["desk"] for row in json.loads(body) if "value" in row}
        assert found <= {desk}, (desk, found)
        # Every second request is the same one for all subjects.
        offset = "-1" if number % 2 else answer["stream-next-offset"]
        if answer.get("connection") == "close":
            writer.close()
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port, limit=1 << 20
            )
    writer.close()
