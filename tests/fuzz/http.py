"""Targets: raw bytes of HTTP through the gateway's protocol, in process, beside h11's reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tests.fuzz.mutating import chunks, mutated
from tests.fuzz.target import Target
from tests.support.servers import edge_settings
from tidegate.app.figures import ConnectionFigures
from tidegate.app.http.protocol import GatewayProtocol
from tidegate.app.http.requests import content_type, preferred, query_values
from tidegate.app.http.server import protocol_factory
from tidegate.app.refusals import CODES, Refused
from tidegate.app.streams.scheduler import StreamScheduler

PIECES: Final = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b"\0", b":", b",", b";", b"0\r\n\r\n",
    b"5\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"Host: b\r\n", b"Content-Length: 5\r\n", b"abcde",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
    b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"HTTP/1.0",
    b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Upgrade: h2c\r\n", b"X:\r\n y\r\n",
    b"Expect: 100-continue\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/9.9", b"\xff", b"POST",
    b"5;ext=1\r\n", b"ffffffffffffffff\r\n", b"-1", b"+5", b"0x5", b"http://a/", b"*", b"CONNECT",
    b"X: " + b"z" * 9_000 + b"\r\n", b"/" + b"z" * 9_000, b"Content-Length: 5, 5\r\n", b"%00",
    b"\x7f",
)  # fmt: skip
TARGETS_OF: Final = (b"/", b"/v1/topics", b"/a?b=c", b"http://a/b", b"/%ff", b"*", b"//", b"/\xe9",
                     b"/a b", b"a", b"")  # fmt: skip
FIELDS: Final = (
    b"X-A: b", b"Accept: */*", b"Connection: close", b"Connection: keep-alive",
    b"Expect: 100-continue",
    b"Upgrade: h2c", b"Connection: Upgrade", b"Content-Type: text/plain", b"X: \xe9", b"X:",
    b"Host: b",
)  # fmt: skip
VERSIONS: Final = (
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"",
)
BODIES: Final = (b"", b"abcde", b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"0\r\n\r\n")
LIMIT: Final = 1 << 20


class Read(NamedTuple):
    """One request as a reader understood it."""

    method: bytes
    target: bytes
    body: bytes


def a_message(random: Random) -> bytes:
    """One request, sound or nearly so."""
    method = random.choice((b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"FOO", b"get"))
    lines = [b" ".join((method, random.choice(TARGETS_OF), random.choice(VERSIONS)))]
    lines += [b"Host: a"] * random.choice((0, 1, 1, 1, 1, 1, 2))
    lines += random.choices(FIELDS, k=random.randrange(3))
    body = random.choice(BODIES)
    if random.random() < 0.4:
        lines.append(b"Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body, b"xyz") if part)
        body += b"0\r\n" + random.choice((b"", b"", b"X-T: 1\r\n")) + b"\r\n"
    elif body or random.random() < 0.3:
        lines.append(b"Content-Length: %d" % len(body))
    random.shuffle(rest := lines[1:])
    return b"\r\n".join([lines[0], *rest, b"", b""]) + body


def some_messages(random: Random) -> tuple[bytes, list[bytes]]:
    """Pipelined requests, and one way to cut them."""
    data = b"".join(a_message(random) for _ in range(random.choice((1, 1, 2, 3))))
    if random.random() < 0.7:
        data = mutated(random, data, PIECES)
    return data, chunks(random, data)


class _Transport(asyncio.Transport):
    """Takes what is written, and never fills up."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed, "a write after the close"
        self.written += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class _Edge:
    """A server of one connection after the other, whose application notes what it is asked."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.read: list[Read] = []
        settings = edge_settings()
        self.factory = protocol_factory(settings, ConnectionFigures(1_000), None, StreamScheduler())
        self.config = uvicorn.Config(self.app, log_config=None, access_log=False, lifespan="off",
                                     http=GatewayProtocol, server_header=False,
                                     interface="asgi3", proxy_headers=False)  # fmt: skip
        self.config.load()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        at = len(self.read)
        raw = scope["raw_path"]
        if scope["query_string"]:
            raw += b"?" + scope["query_string"]
        self.read.append(Read(scope["method"].encode(), raw, b""))
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.read[at] = Read(b"cut off", b"", b"")
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        self.read[at] = Read(scope["method"].encode(), raw, body)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    def feed(self, pieces: Sequence[bytes]) -> tuple[list[Read], bytes]:
        """The whole requests that reached the application, and the answers."""
        return self.loop.run_until_complete(self._fed(pieces))

    async def _fed(self, pieces: Sequence[bytes]) -> tuple[list[Read], bytes]:
        self.read = []
        state = ServerState()
        protocol = self.factory(
            config=self.config, server_state=state, app_state={}, _loop=self.loop
        )
        transport = _Transport()
        protocol.connection_made(transport)
        for piece in pieces:
            if transport.closed:
                break
            protocol.data_received(piece)
            await self._settled(state)
        await self._settled(state)
        protocol.connection_lost(None)
        await self._settled(state)
        assert not state.tasks, "a request outlives its connection"
        return [it for it in self.read if it.method != b"cut off"], bytes(transport.written)

    async def _settled(self, state: ServerState) -> None:
        """Give every task its turns: nothing here waits for anything but the next piece."""
        for _ in range(3 if not state.tasks else 8):
            await asyncio.sleep(0)


@cache
def _edge() -> _Edge:
    return _Edge()


def statuses(written: bytes, *, of_head: bool) -> list[int]:
    """The statuses of the answers, whose bodies are known.

    `of_head`: some of the requests may be HEAD, whose answers have none.
    """
    found = []
    while written:
        head, end, rest = written.partition(b"\r\n\r\n")
        assert end, "half an answer"
        first, *lines = head.split(b"\r\n")
        version, status = first.split(b" ")[:2]
        assert version == b"HTTP/1.1", first
        if status == b"100":  # asked for or not: it depends on how the body came
            written = rest
            continue
        found.append(int(status))
        fields = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(fields[b"content-length"])
        is_problem = fields.get(b"content-type") == b"application/problem+json"
        if of_head and not rest.startswith(b"{" if is_problem else b"ok"):
            length = 0
        assert len(rest) >= length, "half a body"
        written = rest[length:]
    return found


def by_h11(data: bytes) -> list[Read]:
    """The requests by h11, up to what it refuses."""
    found: list[Read] = []
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)
    server.receive_data(data)
    method = target = b""
    body = b""
    try:
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                method, target, body = event.method, event.target, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append(Read(method, target, body))
                answer = h11.Response(status_code=200, headers=[("content-length", "0")])
                server.send(answer)
                server.send(h11.EndOfMessage())
                if server.our_state is not h11.DONE:
                    return found
                server.start_next_cycle()
            else:
                return found
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found


def check_raw(given: tuple[bytes, list[bytes]]) -> bool:
    """Cut in any way, bytes are the same requests; and what a strict reader sees is what we see."""
    data, pieces = given
    whole, answered = _edge().feed([data])
    cut, answered_cut = _edge().feed(pieces)
    codes, codes_cut = (statuses(it, of_head=b"HEAD" in data) for it in (answered, answered_cut))
    assert all(code < 500 for code in codes), codes
    assert whole == cut, (whole, cut)
    # A refusal behind an answer that is still under way is the close alone. Of two faults in one
    # request the cuts decide which is found first, such as a bad byte in a target that is too long.
    longer, shorter = sorted((codes, codes_cut), key=len, reverse=True)
    for code, other_code in zip(longer, shorter, strict=False):
        is_same = code == other_code or min(code, other_code) >= 400
        assert is_same, (codes, codes_cut)
    assert not longer[len(shorter) :] or longer[len(shorter)] >= 400, (codes, codes_cut)
    # h11 takes things that we refuse (and closes where we do not); what both take must be equal.
    theirs = by_h11(data)
    for ours, other in zip(whole, theirs, strict=False):
        assert (ours.method, ours.body) == (other.method, other.body), (ours, other)
    return bool(whole)


# Fields of a request's header


def a_query(random: Random) -> bytes:
    """A query string."""
    names = (b"a", b"b", b"filter", b"A", b"%61", b"", b"zzq")
    values = (b"1", b"", b"%41", b"+", b"%2B", b"%ff", b"%00", b"%zz", b"%", b"%e2%82%ac", b"a=b",
              b"%C0%AF", b"\xe9", b"%ed%a0%80")  # fmt: skip
    pairs = [random.choice(names) + random.choice((b"=", b"=", b"")) + random.choice(values)
             for _ in range(random.randrange(4))]  # fmt: skip
    query = b"&".join(pairs)
    return mutated(random, query, (b"&", b"=", b"%", b";", b"#", *values, *names))


ALLOWED: Final = {"a": "options-invalid", "b": "bookmark-invalid", "filter": "filter-invalid"}


def check_query(query: bytes) -> bool:
    """Each parameter comes once, is known, and is its UTF-8; all others are refused."""
    scope = {"type": "http", "query_string": query, "headers": []}
    expected: dict[str, str] | None = {}
    try:
        for pair in filter(None, query.split(b"&")):
            name, _, value = (unquote_to_bytes(it.replace(b"+", b" ")).decode()
                              for it in pair.partition(b"="))  # fmt: skip
            if name not in ALLOWED or expected is None or name in expected:
                expected = None
            else:
                expected[name] = value
    except UnicodeDecodeError:
        expected = None
    try:
        found: dict[str, str] | None = query_values(scope, ALLOWED)
    except Refused as problem:
        assert problem.status == CODES[problem.code][0] == 400
        found = None
    assert found == expected, (found, expected)
    return found is not None


def some_fields(random: Random) -> list[tuple[bytes, bytes]]:
    """Fields about media types."""
    values = (b"application/json", b"text/event-stream", b"*/*", b"text/*", b";q=0", b";q=0.5",
              b",",
              b";", b"charset=utf-8", b"; charset=latin1", b" ", b"gzip", b"\xff", b"", b"q=0.000",
              b"/", b"application/x-ndjson")  # fmt: skip
    names = (b"accept", b"accept", b"content-type", b"content-encoding")
    return [(random.choice(names), b"".join(random.choices(values, k=random.randint(1, 4))))
            for _ in range(random.randint(1, 3))]  # fmt: skip


def check_fields(headers: list[tuple[bytes, bytes]]) -> bool:
    """A media type is taken if it is the one that is wanted, uncompressed and in UTF-8."""
    scope = {"type": "http", "headers": headers}
    preferred(scope, ("text/event-stream",))
    try:
        found = content_type(scope, ("application/json",))
    except Refused as problem:
        assert problem.code in ("unsupported-media-type", "unsupported-encoding")
        return False
    given = [value for name, value in headers if name == b"content-type"]
    assert found == "application/json"
    assert len(given) >= 1
    assert given[0].strip().lower().startswith(b"application/json")
    assert b"latin1" not in b",".join(given).lower()
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    assert all(coding == b"identity" for coding in codings)
    return True


TARGETS: Final[tuple[Target, ...]] = (
    Target("http", some_messages, check_raw),
    Target("query", a_query, check_query),
    Target("fields", some_fields, check_fields),
)
