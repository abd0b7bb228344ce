"""An incremental parser of event streams (WHATWG HTML, section 9.2), bytes in, events out.

It follows the standard to the letter except in two points: what is not UTF-8 is an error, not a
replacement character, and an event may not grow without bound.

httpx2 has an `EventSource` of its own. It does not fit: it reads the answer itself, so that nobody
sees the comments by which a silent stream is told from a lost one, or stops a read that waits; it
replaces what is not UTF-8, keeps a byte order mark, gives an event for an id alone, and tells
`retry` with the next event only.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.clients.errors import AnswerInvalid

EVENT_BYTES_MAX = 64 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
RETRY_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name (`message` if the stream gave none), its text, the id then in force."""

    name: str
    text: str
    id: str = ""


class Parser:
    """Takes the bytes of one connection, cut anywhere, and gives whole events.

    An event that the connection's end cuts off is never given, and its id never counts.

    Attributes:
        last_id: the id in force: of the last whole event that had one; `Last-Event-ID` on return.
        retry_ms: the wait that the stream asked for before a return; None until it did.
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
        """The events that these bytes complete.

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
        """The bytes with every line end, a pair over two chunks included, as one line feed."""
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
            return self._finished()
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
        elif name == "id" and "\0" not in content:
            self._next_id = content
        elif name == "retry" and content.isascii() and content.isdigit():
            self.retry_ms = int(content[:RETRY_DIGITS_MAX])

    def _finished(self) -> Event | None:
        """The event that a blank line ends; an id without data moves the id alone."""
        self.last_id = self._next_id
        texts, name = self._texts, self._name
        self._texts, self._name, self._event_bytes = [], "", 0
        return Event(name or "message", "\n".join(texts), self.last_id) if texts else None
