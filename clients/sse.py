"""An incremental parser of event streams (WHATWG HTML, section 9.2), bytes in, events out.

It follows the standard except in two points: bytes that are not UTF-8 are an error, not a
replacement character, and the size of an event is bounded.

The `EventSource` of httpx2 does not fit. It reads the answer itself, which hides the comments that
distinguish a quiet stream from a lost one and leaves no way to stop a waiting read. It replaces
bytes that are not UTF-8, keeps a byte order mark, makes an event of an id without data, and reports
`retry` only with the next event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.clients.errors import AnswerInvalid

EVENT_BYTES_MAX = 64 * 1024 * 1024  # a server that never ends a line must not fill the memory
BOM = b"\xef\xbb\xbf"
# Up to eleven days in ms: a longer wait is a mistake.
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Head(msgspec.Struct, frozen=True):
    """What an event is about, as far as its JSON object says."""

    sub: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name (`message` by default), its text, and the stream's id at that point."""

    name: str
    text: str
    id: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object of its text; empty where the text is none, as a bare value may be."""
        try:
            return msgspec.json.decode(self.text, type=dict[str, Any])
        except msgspec.DecodeError:
            return {}

    @property
    def head(self) -> Head:
        """What it is about; known also where a value in it cannot be read."""
        try:
            return msgspec.json.decode(self.text, type=Head)
        except msgspec.DecodeError:
            return Head()


class Parser:
    """Turns the bytes of one connection, cut anywhere, into whole events.

    An event that the end of the connection cuts off is dropped, and so is its id.

    Attributes:
        last_id: the id of the last whole event that had one: `Last-Event-ID` of a reconnect.
        retry_ms: the wait before a reconnect that the stream asked for; None until it does.
    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._pieces: list[bytes] = []
        self._line_bytes = 0
        self._event_bytes = 0
        self._after_cr = False
        self._first_line = True
        self._name = ""
        self._texts: list[str] = []
        self._next_id = last_id

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that these bytes complete.

        Raises:
            AnswerInvalid: not UTF-8, or an event above `EVENT_BYTES_MAX`.
        """
        first, *others = self._unified(chunk).split(b"\n")
        self._hold(first)
        if not others:
            return []
        lines = [b"".join(self._pieces), *others]
        self._pieces, self._line_bytes = [], 0
        self._hold(lines.pop())
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def _unified(self, chunk: bytes) -> bytes:
        """Return the bytes with every line end as one line feed, also a pair cut in two."""
        # A CR that ends one chunk and an LF that begins the next are one line end.
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._line_bytes += len(piece)
        if self._line_bytes + self._event_bytes > EVENT_BYTES_MAX:
            raise AnswerInvalid(f"the stream has an event of more than {EVENT_BYTES_MAX} bytes")

    def _take_line(self, line: bytes) -> Event | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if not line:
            return self._end_event()
        self._event_bytes += len(line)
        try:
            name, _, content = line.decode("utf-8").partition(":")
        except UnicodeDecodeError as error:
            raise AnswerInvalid(f"the stream is not UTF-8: {error.reason}") from None
        self._take_field(name, content.removeprefix(" "))
        return None

    def _take_field(self, name: str, content: str) -> None:
        if name == "data":
            self._texts.append(content)
        elif name == "event":
            self._name = content
        # The standard ignores such an id: a header, which has to carry it back, cannot hold NUL.
        elif name == "id" and "\0" not in content:
            self._next_id = content
        elif name == "retry" and _DIGITS.fullmatch(content):
            self.retry_ms = int(content)

    def _end_event(self) -> Event | None:
        """Return the event that a blank line ends; an id without data only moves the id."""
        self.last_id = self._next_id
        texts, name = self._texts, self._name
        self._texts, self._name, self._event_bytes = [], "", 0
        return Event(name or "message", "\n".join(texts), self.last_id) if texts else None
