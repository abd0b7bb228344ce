"""A client that sends exactly the given bytes, and reads answers off the socket."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

from tests.support.deadlines import HANGS_S
from tests.support.network.memory import open_connection


@dataclass(frozen=True)
class Answer:
    """One parsed HTTP/1.1 answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """The body as a problem document; fails where it is none."""
        assert self.headers["content-type"] == "application/problem+json", self
        document: dict[str, Any] = json.loads(self.body)
        assert document["type"] == "urn:tidegate:problem:" + document["code"]
        assert document["status"] == self.status
        assert document["title"]
        assert document["detail"]
        return document

    @property
    def code(self) -> str:
        """The problem's code."""
        return str(self.problem["code"])


class Wire:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    @property
    def transport(self) -> asyncio.Transport:
        """What reads the socket; asyncio keeps it to itself."""
        return cast("asyncio.Transport", self.writer.transport)

    def freeze(self) -> None:
        """Read nothing any more, as a client that hangs."""
        self.transport.pause_reading()

    def thaw(self) -> None:
        """Read again."""
        self.transport.resume_reading()

    async def read_to_end(self) -> bytes:
        """Everything up to the server's close; a reset counts as one."""
        pieces = []
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(HANGS_S):
                while piece := await self.reader.read(65536):
                    pieces.append(piece)
        return b"".join(pieces)

    async def read_head(self) -> tuple[int, dict[str, str]]:
        """The status and header of one answer."""
        async with asyncio.timeout(HANGS_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
        return parse_head(head)

    async def read_answer(self) -> Answer:
        """One answer with a Content-Length, the connection staying open."""
        status, headers = await self.read_head()
        async with asyncio.timeout(HANGS_S):
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(status, headers, body)

    async def read_until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(HANGS_S):
            return await self.reader.readuntil(mark)


@contextlib.asynccontextmanager
async def connected(address: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    """A connection to the server at `address`; `tls`: what it trusts."""
    reader, writer = await open_connection(address, tls)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read_all(address: str, raw: bytes) -> bytes:
    """Send `raw` and read to the server's close."""
    async with connected(address) as wire:
        await wire.send(raw)
        return await wire.read_to_end()


async def exchange(address: str, raw: bytes) -> Answer:
    """Send `raw`, read to the server's close, and parse the one answer."""
    async with connected(address) as wire:
        with contextlib.suppress(ConnectionError):
            await wire.send(raw)
        return parse_answer(await wire.read_to_end())


def request(
    target: str = "/", *headers: str, method: str = "GET", host: str = "localhost"
) -> bytes:
    """A request that asks the server to close after it."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def get(*lines: bytes, first: bytes = b"GET / HTTP/1.1") -> bytes:
    """A request that leaves the connection open, of raw header lines."""
    return b"\r\n".join([first, b"Host: localhost", *lines, b"", b""])


def post(*lines: bytes, body: bytes = b"") -> bytes:
    """The same with a body, which the lines have to announce."""
    return get(*lines, first=b"POST /body HTTP/1.1") + body


def parse_answer(raw: bytes) -> Answer:
    """One whole answer, chunked or not."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, headers = parse_head(head)
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return Answer(status, headers, body)


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}


def _chunks(body: bytes) -> list[bytes]:
    chunks = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return chunks
