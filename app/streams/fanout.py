"""Fan-out: one text is written to the sockets of a whole cohort.

A slow reader leaves its cohort here, and is then written to by its own `SocketStream`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

from tidegate.app.streams.compression import Coding, StreamEncoder, block
from tidegate.app.streams.connection import Connection, HandedOver, WriteWatch
from tidegate.app.streams.encoding import Style, chunk, rows_text
from tidegate.app.streams.scheduler import INFINITY, StreamScheduler
from tidegate.app.streams.sse import HEARTBEAT
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.outputs import Rows

# A cohort takes larger texts in parts: each slow peer would buffer a copy of the whole.
FLUSH_BYTES_MAX: Final = 1 << 20
# The most that one call writes, in streams and in bytes: about 1.5 milliseconds of work.
STREAMS_AT_ONCE: Final = 256
BYTES_AT_ONCE: Final = 4 << 20
# The most streams that one call takes back or sends away, as they did not take a whole text.
DRAINED_AT_ONCE: Final = 32
# The most that a healthy socket has unsent. A peer with more is slow.
SMALL_BUFFERS_BYTES: Final = 64 << 10
# The index of a recipient that has left.
LEFT: Final = -1
# Replaces the socket of a recipient that has left or drains. A closed socket takes nothing.
CLOSED_SOCKET: Final = socket.socket()
CLOSED_SOCKET.close()


class SharedChunk(NamedTuple):
    """A text for many streams, framed once as a chunk of HTTP.

    Args:
        text: the text before compression.
        framed: the bytes on the wire.
        size_bytes: the size of the body in the frame.
    """

    text: bytes
    framed: bytes
    size_bytes: int


def shared_chunk(text: bytes, coding: Coding) -> SharedChunk:
    """Compress a text as its coding says, and frame it."""
    body = text if coding is Coding.IDENTITY else block(text, coding)
    return SharedChunk(text, chunk(body), len(body))


def send_each(sockets: Sequence[socket.socket], text: bytes) -> list[int]:
    """Send a text to sockets; return how many bytes each took, 0 after an error."""
    # A loop in Python takes as long as the calls: `map` continues after the socket that has failed.
    # `os.write` would take longer: the kernel first resolves a file to its socket.
    sends = map(socket.socket.send, sockets, repeat(text))
    taken_bytes: list[int] = []
    while len(taken_bytes) < len(sockets):
        try:
            taken_bytes.extend(sends)
        except OSError:  # a full socket, or one whose peer has left
            taken_bytes.append(0)
    return taken_bytes


class Recipient(Protocol):
    """A stream to which a cohort's writer writes; a protocol, as streams import this module.

    Attributes:
        at: set by the writer: its index there.
        had_bytes: set by the writer: its count of bytes when the stream entered.
    """

    at: int
    had_bytes: int

    @property
    def line(self) -> HandedOver:
        """The connection; its transport buffers nothing when the stream enters."""

    @property
    def encoder(self) -> StreamEncoder | None:
        """Compresses the answer; None: the answer is not compressed."""

    @property
    def wrote_s(self) -> float:
        """The loop's time at the last write."""

    def wake(self) -> None:
        """Leave the cohort, and write alone again."""


class CohortWriter:
    """Writes each text of a cohort to the sockets of all its streams, in one plain loop.

    A stream costs one send: the loop calls no method of the stream and sets no timer for it. What
    a stream was sent is the difference between two counters of the writer. A text is written to
    `STREAMS_AT_ONCE` in one call; the event loop serves others between calls. The writer takes the
    next text when all streams have this one. A stream whose socket takes only a part of a text
    stays in the cohort if it has taken the rest by the next text.

    Args:
        cohort: the engine's members that share their progress.
        style: the format of rows.
        coding: the compression of the answers.
        take: returns the next rows, of at most so many bytes; None: nothing is left.
        wrote: called after each write with the number of streams, the bytes that each was sent,
            and the seconds that it took.
        scheduler: calls the writer.
        heartbeat_s: the longest time without a write.
    """

    def __init__(
        self,
        cohort: Cohort,
        style: Style,
        *,
        coding: Coding,
        take: Callable[[Cohort, int], Rows | None],
        wrote: Callable[[int, int, float], None],
        scheduler: StreamScheduler,
        heartbeat_s: float,
    ) -> None:
        self.cohort = cohort
        self._style = style
        self._coding = coding
        self._take = take
        self._wrote = wrote
        self._scheduler = scheduler
        self._heartbeat_s = heartbeat_s
        # Parallel lists. A stream that leaves is cleared in both; one that drains only in the
        # second, where `CLOSED_SOCKET` takes its place.
        self._recipients: list[Recipient | None] = []
        self._sockets: list[socket.socket] = []
        self._streams = 0
        self._draining: deque[Recipient] = deque()
        self._write_watch: WriteWatch | None = None
        # The current round: streams before `_at` have its text. Streams from `_end` on entered
        # later, and had it before.
        self._chunk: SharedChunk | None = None
        self._at = self._end = 0
        self._asks_kernel = False
        self._unasked_bytes = 0  # written since the kernel was asked what peers have taken
        self._bytes = 0
        self._wrote_s = asyncio.get_running_loop().time()
        self._beat_s = INFINITY
        self._is_silent = False  # a heartbeat is due

    @property
    def is_empty(self) -> bool:
        """True once all streams have left."""
        return not self._streams

    @property
    def wrote_s(self) -> float:
        """The loop's time at the last write, or that of the stream that was idle longest."""
        return self._wrote_s

    # --- Streams

    def enter(self, recipient: Recipient) -> None:
        """Add a stream, which has everything that its cohort has taken."""
        recipient.at, recipient.had_bytes = len(self._recipients), self._bytes
        self._recipients.append(recipient)
        self._sockets.append(recipient.line.plain_socket or CLOSED_SOCKET)
        self._streams += 1
        self._write_watch = recipient.line.write_watch
        # One heartbeat for all, which is due for the stream that has been idle longest.
        self._wrote_s = min(self._wrote_s, recipient.wrote_s)
        self._await_beat()

    def leave(self, recipient: Recipient) -> int:
        """Remove a stream; return the bytes that it was sent here.

        If the current round has not reached it yet, the text is written now: the engine counts it
        as taken.
        """
        unwritten = self._chunk if self._at <= recipient.at < self._end else None
        self._remove(recipient)
        if unwritten is not None and not recipient.line.connection.is_closing:
            if recipient.encoder is not None:
                recipient.encoder.add_to_checksum(unwritten.text)
            recipient.line.write(unwritten.framed)
        return self._bytes - recipient.had_bytes

    def connections(self) -> list[Connection]:
        """Return the connections that it writes to, for the watch over their deadlines."""
        return [it.line.connection for it in self._recipients if it is not None]

    def _remove(self, recipient: Recipient) -> None:
        self._recipients[recipient.at] = None
        self._sockets[recipient.at] = CLOSED_SOCKET
        recipient.at = LEFT
        self._streams -= 1

    def _compact(self) -> None:
        """Between two rounds, drop the entries of streams that have left."""
        if len(self._recipients) < 2 * self._streams:
            return
        recipients = [recipient for recipient in self._recipients if recipient is not None]
        for at, recipient in enumerate(recipients):
            recipient.at = at
        self._recipients = [*recipients]
        self._sockets = [recipient.line.plain_socket or CLOSED_SOCKET for recipient in recipients]

    # --- Rounds

    def __call__(self) -> None:
        """Write to the next streams; begin another round after the last of them."""
        if self._at == self._end and not self._begin():
            return
        chunk, first = self._chunk, self._at
        assert chunk is not None, "a round has begun"
        streams_max = min(STREAMS_AT_ONCE, 1 + BYTES_AT_ONCE // len(chunk.framed))
        end = min(first + streams_max, self._end)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._at = end  # before the write: a stream that leaves during it has the text
        if self._coding is Coding.GZIP:  # the only one with a checksum over all texts
            for recipient in self._recipients[first:end]:
                if recipient is not None and recipient.encoder is not None:
                    recipient.encoder.add_to_checksum(chunk.text)
        if self._asks_kernel:
            self._send_slow_away(first, end, chunk)
        streams = self._write(chunk.framed, first, end)
        # Usually no round follows, and beginning one to find that out costs thirty writes.
        if end < self._end or self._is_silent or not self.cohort.becomes_idle():
            self._scheduler.call_soon(self)
        else:
            self._chunk = None
        if streams:
            self._wrote(streams, chunk.size_bytes, loop.time() - began_s)

    def _begin(self) -> bool:
        """Take the next rows, or a heartbeat, and begin a round; return False if there are none."""
        self._chunk = None
        # Before rows are taken: a stream that is sent away takes them alone.
        if self._draining and (self.cohort.has_rows or self._is_silent):
            self._end_draining()
            if self._draining:
                self._scheduler.call_soon(self)
                return False
        self._compact()
        rows = self._take(self.cohort, FLUSH_BYTES_MAX) if self._streams else None
        if rows is not None:
            self._begin_round(rows_text(rows, self._style))
        elif self._is_silent and self._streams:
            self._begin_round(HEARTBEAT)
        if self._is_silent:
            self._is_silent = False
            self._await_beat()
        return self._at < self._end

    def _begin_round(self, text: bytes) -> None:
        self._chunk = shared_chunk(text, self._coding)
        self._at, self._end = 0, len(self._recipients)
        self._asks_kernel = self._unasked_bytes > SMALL_BUFFERS_BYTES
        self._unasked_bytes = 0 if self._asks_kernel else self._unasked_bytes
        self._unasked_bytes += self._chunk.size_bytes
        self._bytes += self._chunk.size_bytes
        self._wrote_s = asyncio.get_running_loop().time()
        assert self._write_watch is not None, "a stream has entered"
        self._write_watch.note_group(self.connections)

    def _write(self, framed: bytes, first: int, end: int) -> int:
        """Write to some streams; return their number."""
        # Not through the transports, which buffer nothing here: their checks take as long as a
        # send. If a socket takes nothing, the write in `_drain` lets the transport find out why.
        taken_bytes = send_each(self._sockets[first:end], framed)
        streams = end - first
        if taken_bytes.count(len(framed)) < streams:
            for at, taken in enumerate(taken_bytes, first):
                if self._recipients[at] is None:
                    streams -= 1
                elif taken < len(framed):
                    self._drain(at, memoryview(framed)[taken:])
        return streams

    def _drain(self, at: int, rest: memoryview) -> None:
        """Hand the rest to the connection, which has until the next text to write it."""
        recipient = self._recipients[at]
        assert recipient is not None, "it has not left"
        recipient.line.write(rest)
        if recipient.line.connection.write_buffer_bytes:
            self._sockets[at] = CLOSED_SOCKET
            self._draining.append(recipient)

    def _end_draining(self) -> None:
        """Take back some streams whose transports are empty again; the others leave the cohort."""
        for _ in range(min(DRAINED_AT_ONCE, len(self._draining))):
            recipient = self._draining.popleft()
            if recipient.at == LEFT:
                continue
            if recipient.line.connection.write_buffer_bytes:
                recipient.wake()
            else:
                self._sockets[recipient.at] = recipient.line.plain_socket or CLOSED_SOCKET

    def _send_slow_away(self, first: int, end: int, chunk: SharedChunk) -> None:
        """Let streams leave the cohort whose peers have not taken earlier writes."""
        for it in self._recipients[first:end]:
            if it is not None and it.line.connection.unsent_bytes > SMALL_BUFFERS_BYTES:
                it.line.write(chunk.framed)
                it.wake()

    # --- Heartbeats

    def _await_beat(self) -> None:
        due_s = self._wrote_s + self._heartbeat_s
        if due_s < self._beat_s:
            self._beat_s = due_s
            self._scheduler.call_at(due_s, self._beat)

    def _beat(self) -> None:
        """Send a heartbeat to all streams if nothing was written for so long."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._beat_s or self.is_empty:
            return  # a later call is scheduled, or all streams have left
        self._beat_s = INFINITY
        if now_s < self._wrote_s + self._heartbeat_s:
            self._await_beat()
        else:
            self._is_silent = True
            self._scheduler.call_soon(self)
