"""A server of the Durable Streams protocol for its conformance tests, in front of a gateway.

The tests make streams and append to them by the protocol, which the gateway does not serve: their
PUT, POST and DELETE become a topic and messages of the gateway here. Their reads go to the gateway
as they are, and its answers back. The gateway serves JSON alone: a stream of another type has
its bytes as JSON strings there, and only the bodies of its answers are rewritten.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
EVENTS: Final = "text/event-stream"
NOT_PASSED: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}
BODY_BYTES_MAX: Final = 64 << 20
NAME_CHARACTERS_MAX: Final = 200

_OTHER = re.compile(r"[^A-Za-z0-9._-]")
_ARRAY = re.compile(rb"(?m)^data:(\[.*\])$")
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True)
class Made:
    """A stream that was made: its topic, and the type of its content."""

    topic: str
    content_type: str

    @property
    def media_type(self) -> str:
        return media_type(self.content_type)

    @property
    def is_json(self) -> bool:
        return self.media_type == JSON


class Shim:
    """Serves the protocol in front of a gateway."""

    def __init__(self, gateway: str, http: aiohttp.ClientSession) -> None:
        self._gateway = gateway
        self._http = http
        self._streams: dict[str, Made] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request: writes by requests of the gateway's API, reads by its answers."""
        if request.method == "PUT":
            return await self._make(request)
        made = self._streams.get(request.path)
        if request.method not in ("POST", "DELETE"):
            return await self._read(request, made)
        if made is None:
            return web.Response(status=404)
        if request.method == "POST":
            return await self._append(request, made)
        del self._streams[request.path]
        async with self._http.delete(f"{self._gateway}/v1/topics/{made.topic}") as answer:
            return web.Response(status=answer.status)

    async def _make(self, request: web.Request) -> web.Response:
        content_type = request.headers.get("Content-Type", BYTES)
        made = self._streams.get(request.path)
        if made is not None:
            is_same = made.media_type == media_type(content_type)
            return await self._written(made, 200 if is_same else 409)
        made = Made(topic_of(request.path), content_type)
        address = f"{self._gateway}/v1/topics/{made.topic}"
        async with self._http.put(address, json={"retain": False}) as answer:
            if answer.status != 201:
                return web.Response(status=answer.status, body=await answer.read())
        self._streams[request.path] = made
        body = await request.read()
        if body and not (made.is_json and body.strip() == b"[]"):
            published = await self._published(made, body)
            if published.status != 204:
                return published
        return await self._written(made, 201, {"Location": str(request.url)})

    async def _append(self, request: web.Request, made: Made) -> web.Response:
        content_type = request.headers.get("Content-Type", "")
        if media_type(content_type) != made.media_type:
            return web.Response(status=409 if content_type else 400)
        return await self._published(made, await request.read())

    async def _published(self, made: Made, body: bytes) -> web.Response:
        """Publish what is appended: each element of an array is a message."""
        if made.is_json:
            try:
                read = json.loads(body)
            except ValueError:
                return web.Response(status=400)
            values = read if isinstance(read, list) else [read]
        else:
            values = [body.decode("latin-1")] if body else []
        if not values:
            return web.Response(status=400)
        lines = "".join(json.dumps(value) + "\n" for value in values)
        async with self._http.post(
            f"{self._gateway}/v1/topics/{made.topic}/messages",
            data=io.BytesIO(lines.encode()),  # aiohttp warns of large bodies as bytes
            headers={"Content-Type": "application/x-ndjson"},
        ) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, body=await answer.read())
        return await self._written(made, 204)

    async def _written(
        self, made: Made, status: int, headers: dict[str, str] | None = None
    ) -> web.Response:
        """Return the answer to a write, with the position of the end."""
        async with self._http.head(f"{self._gateway}/v1/topics/{made.topic}/stream") as answer:
            tail = {"Stream-Next-Offset": answer.headers["Stream-Next-Offset"]}
        shown = {"Content-Type": made.content_type} if status != 204 else {}
        return web.Response(status=status, headers={**shown, **tail, **(headers or {})})

    async def _read(self, request: web.Request, made: Made | None) -> web.StreamResponse:
        """Pass a read on, and its answer back; of what is not JSON with another body."""
        is_rewritten = made is not None and not made.is_json
        asked = {name: text for name, text in request.headers.items() if name.lower() != "host"}
        if is_rewritten:
            asked["Accept-Encoding"] = "identity"
        topic = topic_of(request.path) if made is None else made.topic
        address = f"{self._gateway}/v1/topics/{topic}/stream"
        query = request.rel_url.raw_query_string
        url = URL(f"{address}?{query}" if query else address, encoded=True)
        async with self._http.request(request.method, url, headers=asked) as answer:
            given = web.StreamResponse(status=answer.status)
            for name, text in answer.headers.items():
                if name.lower() not in NOT_PASSED:
                    given.headers.add(name, text)
            has_events = answer.headers.get("Content-Type", "").startswith(EVENTS)
            is_body = is_rewritten and answer.status == 200 and not has_events
            if made is not None and is_body:
                given.headers["Content-Type"] = made.content_type
            with contextlib.suppress(aiohttp.ClientConnectionResetError):  # the test has left
                await given.prepare(request)
                if is_body:
                    await given.write(as_bytes(await answer.read()))
                else:
                    async for piece in answer.content.iter_any():
                        await given.write(_ARRAY.sub(_fields, piece) if is_rewritten else piece)
            return given


def media_type(text: str) -> str:
    """Return a content type without its parameters."""
    return text.partition(";")[0].strip().lower()


def topic_of(path: str) -> str:
    """Return the name of the topic of a path."""
    return _OTHER.sub("-", path.strip("/").replace("/", "."))[:NAME_CHARACTERS_MAX]


def as_bytes(array: bytes) -> bytes:
    """Return the bytes that an array of strings stands for."""
    return b"".join(value.encode("latin-1") for value in json.loads(array or b"[]"))


def _fields(found: re.Match[bytes]) -> bytes:
    return b"\n".join(b"data:" + line for line in _LINE_ENDS.split(as_bytes(found[1])))


@asynccontextmanager
async def shim_before(gateway: str) -> AsyncIterator[str]:
    """Serve the protocol in front of a gateway; yields the address."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
        auto_decompress=False,
    ) as http:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", Shim(gateway, http).handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()
