"""One request on a connection and its answer, as ASGI receives and sends them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Scope

from tidegate.app.http.problems import INTERNAL, MEDIA_TYPE, body_of
from tidegate.app.http.wire import Fields, FieldTuple

logger = logging.getLogger("tidegate.server")

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
WITHOUT_BODY: Final = frozenset({204, 304})
FAILURE: Final = body_of(INTERNAL)
FAILED: Final = (
    (b"content-type", MEDIA_TYPE.encode()),
    (b"content-length", b"%d" % len(FAILURE)),
    (b"cache-control", b"no-store"),
    (b"connection", b"close"),
)

# A name or a value with anything else could end its line, and begin a field or a body of its own.
_NAMES: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_VALUES: Final = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Line(Protocol):
    """The connection of an exchange."""

    @property
    def is_closing(self) -> bool:
        """True once it is closed or about to be."""

    def write(self, part: bytes) -> None:
        """Write a part of the answer."""

    @property
    def is_full(self) -> bool:
        """True until the peer has taken enough of what was written."""

    async def wait_for_room(self) -> None:
        """Wait until it is not full, or is lost."""

    def resume_reading(self) -> None:
        """Read on: somebody waits for the body."""

    def close(self) -> None:
        """Close once all is sent that was written."""

    def complete(self, exchange: Exchange) -> None:
        """Take note that the answer has been written whole."""


class Exchange:
    """A request, and the answer to it.

    Args:
        line: its connection.
        scope: of ASGI.
        own_fields: header fields that the server adds to each answer.
        keep_alive: whether the connection may serve another request.
        expects_continue: whether the client waits to be asked for the body.

    Attributes:
        body: what has come of the body, and has not been received yet.
        more_body: True until the body is whole.
        is_cut: True once the connection cannot take an answer.
        has_begun: True once the header of the answer is written.
        is_complete: True once the answer is written.
    """

    __slots__ = (
        "_held",
        "_is_chunked",
        "_is_open_ended",
        "_left_bytes",
        "_line",
        "_may_wait",
        "_news",
        "_stop_waiting",
        "body",
        "expects_continue",
        "has_begun",
        "is_complete",
        "is_cut",
        "keep_alive",
        "more_body",
        "own_fields",
        "scope",
    )

    def __init__(
        self,
        line: Line,
        scope: Scope,
        own_fields: Sequence[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.own_fields = own_fields
        self.keep_alive = keep_alive
        # HTTP/1.0 has no 100 (RFC 9110, 15.2): its client would take that for the answer.
        self.expects_continue = expects_continue and scope["http_version"] != "1.0"
        self.body = bytearray()
        self.more_body = True
        self.is_cut = self.has_begun = self.is_complete = False
        self._line = line
        self._news = asyncio.Event()
        self._may_wait = True
        self._stop_waiting: Callable[[], None] | None = None
        self._is_chunked = self._is_open_ended = False
        self._left_bytes = 0  # of the length that the header of the answer has named
        self._held: list[bytes] | None = None

    # What the connection calls

    def append(self, piece: bytes) -> None:
        """Add a piece of the body."""
        self.body += piece
        self._news.set()

    def end_body(self) -> None:
        """Take note that the body is whole."""
        self.more_body = False
        self._news.set()

    def cut(self) -> None:
        """Take note that no answer can be written any more."""
        self.is_cut = True
        self._news.set()
        self.end_wait()

    def end_wait(self) -> None:
        """Let no answer wait for something new any more: the client may have left."""
        self._may_wait = False
        stop_waiting, self._stop_waiting = self._stop_waiting, None
        if stop_waiting is not None:
            stop_waiting()

    async def run(self, app: ASGIApp) -> None:
        """Let the application answer; whatever it leaves open is ended here."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            logger.exception("the application failed in a request")
            self.fail()
        else:
            if not self.is_complete and not self.is_cut:
                logger.error("the application has left a request without its whole answer")
                self.fail()
        finally:
            if not self.is_complete and not self.is_cut:  # it was cancelled
                self._line.close()

    def fail(self) -> None:
        """Answer 500; a part of another answer is cut, so that it cannot pass for whole."""
        if self.has_begun:
            self._line.close()
            self.is_cut = True
        elif not self.is_cut:
            self.respond(500, FAILED, b"" if self.scope["method"] == "HEAD" else FAILURE)

    # What the application calls

    def while_waiting(self, stop_waiting: Callable[[], None]) -> None:
        """Take what lets an answer that waits come at once, to call it if the client leaves."""
        if self._may_wait:
            self._stop_waiting = stop_waiting
        else:
            stop_waiting()

    async def receive(self) -> Message:
        """Return the next piece of the body, or that the client has left or has its answer."""
        if self.expects_continue and not self._line.is_closing:
            self._line.write(CONTINUE)
        self.expects_continue = False
        if not self.is_cut and not self.is_complete:
            self._line.resume_reading()
            await self._news.wait()
            self._news.clear()
        if self.is_cut or self.is_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """Write a part of the answer, once the peer has taken enough of what was before.

        Raises:
            RuntimeError: it is no valid answer.
        """
        if self._line.is_full and not self.is_cut:
            await self._line.wait_for_room()
        if self.is_cut:
            return
        if self.is_complete:
            raise RuntimeError("the answer is complete")
        kind = "http.response.body" if self.has_begun else "http.response.start"
        if message["type"] != kind:
            raise RuntimeError(f"{kind} was to come, and not {message['type']}")
        if self.has_begun:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            headers = [(name, value) for name, value in message.get("headers", ())]
            self._write(self.begin(message["status"], headers))

    def respond(self, status: int, fields: Fields, body: bytes) -> None:
        """Write a whole answer at once, in place of an application; `fields` have its length."""
        self._line.write(self.begin(status, fields) + body)
        self._left_bytes = 0
        self.end()

    def begin(self, status: int, fields: Fields) -> bytes:
        """Return the header of the answer, which counts as written."""
        self.expects_continue = False
        own, given = _written(tuple(self.own_fields)), _written(tuple(fields))
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, own.lines, given.lines]
        length_bytes = own.length_bytes if given.length_bytes is None else given.length_bytes
        has_length, has_coding = length_bytes is not None, own.is_chunked or given.is_chunked
        self._left_bytes = length_bytes or 0
        closes = own.closes or given.closes
        # What follows an early answer need not be the rest of the body: HAProxy 2.6 sends another
        # request on the connection, whose begin would be taken for it.
        self.keep_alive = self.keep_alive and not closes and not self.more_body
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        has_body = self.scope["method"] != "HEAD" and status not in WITHOUT_BODY
        # A body of unknown length ends with the connection in HTTP/1.0 (RFC 9112, 7.1).
        self._is_open_ended = not has_length and self.scope["http_version"] == "1.0"
        self._is_chunked = has_coding or (has_body and not has_length and not self._is_open_ended)
        if self._is_chunked and not has_coding:
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self.has_begun = True  # only now: what cannot be sent is answered with 500 instead
        return b"".join(lines)

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._left_bytes = 0
        elif self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._write(chunk + LAST_CHUNK if is_last else chunk)
        elif self._is_open_ended:
            self._write(body)
        else:
            if len(body) > self._left_bytes:
                raise RuntimeError("an answer is longer than its Content-Length")
            self._left_bytes -= len(body)
            self._write(body)
        if not is_last:
            return
        if self._left_bytes:
            raise RuntimeError("an answer is shorter than its Content-Length")
        self.end()

    def end(self) -> None:
        """Record that the answer is written; the connection stays open, or is closed."""
        self.is_complete = True
        self._stop_waiting = None
        self._news.set()
        if not self.keep_alive:
            self._line.close()
        self._line.complete(self)

    def _write(self, part: bytes) -> None:
        if self._held is not None:
            self._held.append(part)
        elif part:
            self._line.write(part)

    @contextmanager
    def holding(self) -> Iterator[list[bytes]]:
        """Collect what the answer writes in place of sending it.

        A stream writes its first event with it. Each write by itself costs a system call, and
        wakes the peer.
        """
        held: list[bytes] = []
        self._held = held
        try:
            yield held
        finally:
            self._held = None


class _Written(NamedTuple):
    """Header fields as lines, and what they say of the body and of the connection."""

    lines: bytes
    length_bytes: int | None
    is_chunked: bool
    closes: bool


@lru_cache(maxsize=256)  # most answers have the fields of another one, such as the same flush
def _written(fields: FieldTuple) -> _Written:
    """Write header fields.

    Raises:
        RuntimeError: one of them would end its line.
    """
    named = [(name.lower(), value) for name, value in fields]
    for name, value in named:
        if not name or not _NAMES.fullmatch(name) or not _VALUES.fullmatch(value):
            raise RuntimeError("an answer has a header field that HTTP cannot carry")
    values = dict(named)
    length = values.get(b"content-length")
    return _Written(
        b"".join(b"%b: %b\r\n" % field for field in named),
        None if length is None else int(length),
        values.get(b"transfer-encoding", b"").lower() == b"chunked",
        any(name == b"connection" and b"close" in value.lower() for name, value in named),
    )
