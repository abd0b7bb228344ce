"""Fan-out: one text to the sockets of a whole cohort."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from tidegate.app.delivery.compression import Coding, StreamEncoder, block
from tidegate.app.delivery.encoding import Style, chunk, rows_text
from tidegate.app.delivery.group_send import ENTRIES, GroupSend
from tidegate.app.delivery.scheduler import INFINITY, StreamScheduler, Wakeup
from tidegate.app.http.admission import HandedOver
from tidegate.app.http.connection import Connection, WriteWatch
from tidegate.app.http.wire import HEARTBEAT
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.outputs import Rows

# A larger text would be copied into the buffer of each slow peer: a cohort takes it in parts.
FLUSH_BYTES_MAX: Final = 1 << 20
# So many streams, or so many bytes, are written between two looks at the clock: 1.5 milliseconds.
STREAMS_AT_ONCE: Final = ENTRIES
BYTES_AT_ONCE: Final = 4 << 20
# What a healthy socket may hold on its way; more than that waits.
SMALL_BUFFERS_BYTES: Final = 64 << 10
# In the place of an index: the stream has left.
LEFT: Final = -1
# In the place of a socket. A closed one takes nothing.
NOBODY: Final = socket.socket()
NOBODY.close()


class SharedChunk(NamedTuple):
    """A text that many streams write, framed once as a chunk of an answer.

    Args:
        text: as it is decoded.
        framed: as it is written, perhaps compressed.
        size_bytes: of the body in the frame.
    """

    text: bytes
    framed: bytes
    size_bytes: int


def shared_chunk(text: bytes, coding: Coding) -> SharedChunk:
    """Compress, where that is asked for, and frame a text."""
    body = block(text, coding)
    return SharedChunk(text, chunk(body), len(body))


class Recipient:
    """A stream as a cohort writes to it.

    Args:
        session: of the stream.
        line: the connection; nothing waits in its transport.
        encoder: of an answer that is compressed.
        wrote_s: when the stream wrote last, by the loop's clock.
        wakeup: of the stream, once it has to write by itself again.
    """

    __slots__ = ("at", "encoder", "had_bytes", "line", "session", "wakeup", "wrote_s")

    def __init__(
        self,
        session: str,
        line: HandedOver,
        encoder: StreamEncoder | None,
        wrote_s: float,
        wakeup: Wakeup,
    ) -> None:
        self.session = session
        self.line = line
        self.encoder = encoder
        self.wrote_s = wrote_s
        self.wakeup = wakeup
        # The writer's: an index, and what it had written to each stream when this one came.
        self.at = 0
        self.had_bytes = 0


class CohortWriter:
    """Writes what a cohort takes to the sockets of all its streams, in one plain loop.

    A stream costs one send, and nothing else: no object of its own is asked, no timer is
    set. Its counts are differences between two counts of the writer. A text goes out in turns of
    `STREAMS_AT_ONCE`, between which others are served; the next one is taken when all have it. A
    stream whose socket does not take a text whole stays, if it has by then.

    Args:
        cohort: what takes, in the engine.
        style: how rows are written.
        coding: how the answers are compressed.
        take: takes for the cohort; None: nothing is left.
        send: sends a text to the sockets of a turn.
        wrote: called after each turn with the number of streams, the bytes that each got, and the
            seconds that it took in all.
        scheduler: calls the writer.
        heartbeat_s: the longest silence.
    """

    def __init__(
        self,
        cohort: Cohort,
        style: Style,
        *,
        coding: Coding,
        take: Callable[[Cohort, int], Rows | None],
        send: GroupSend,
        wrote: Callable[[int, int, float], None],
        scheduler: StreamScheduler,
        heartbeat_s: float,
    ) -> None:
        self.cohort = cohort
        self._style = style
        self._coding = coding
        self._take = take
        self._send = send
        self._wrote = wrote
        self._scheduler = scheduler
        self._heartbeat_s = heartbeat_s
        # Side by side. A stream that leaves is struck out in both, one that drains in the latter.
        self._recipients: list[Recipient | None] = []
        self._sockets: list[socket.socket] = []
        self._streams = 0
        self._draining: list[Recipient] = []
        self._write_watch: WriteWatch | None = None
        # The round under way: the streams before `_at` have its text, those from `_end` on came
        # later and had it before.
        self._chunk: SharedChunk | None = None
        self._at = self._end = 0
        self._asks_kernel = False
        self._unasked_bytes = 0  # written since the kernel was asked what peers have taken
        self._bytes = 0
        self._wrote_s = asyncio.get_running_loop().time()
        self._beat_s = INFINITY

    @property
    def is_empty(self) -> bool:
        """True once all streams have left."""
        return not self._streams

    # --- Streams

    def enter(self, recipient: Recipient) -> None:
        """Write for a stream from here on; it has had all that its cohort has taken."""
        recipient.at, recipient.had_bytes = len(self._recipients), self._bytes
        self._recipients.append(recipient)
        self._sockets.append(recipient.line.plain_socket or NOBODY)
        self._streams += 1
        self._write_watch = recipient.line.write_watch
        # One heartbeat for all: it comes when it is due for whoever has been silent longest.
        self._wrote_s = min(self._wrote_s, recipient.wrote_s)
        self._await_beat()

    def leave(self, recipient: Recipient) -> int:
        """Let a stream write by itself; return the bytes that it got here.

        A text that the round under way has not brought it yet is written now: for the engine it
        has been taken.
        """
        owed = self._chunk if self._at <= recipient.at < self._end else None
        self._strike_out(recipient)
        if owed is not None and not recipient.line.connection.is_closing:
            if recipient.encoder is not None:
                recipient.encoder.note(owed.text)
            recipient.line.write(owed.framed)
        recipient.wrote_s = max(recipient.wrote_s, self._wrote_s)
        return self._bytes - recipient.had_bytes

    def connections(self) -> list[Connection]:
        """Return the connections that it writes to, for the watch over their deadlines."""
        return [it.line.connection for it in self._recipients if it is not None]

    def _strike_out(self, recipient: Recipient) -> None:
        self._recipients[recipient.at] = None
        self._sockets[recipient.at] = NOBODY
        recipient.at = LEFT
        self._streams -= 1

    def _close_ranks(self) -> None:
        """Forget the places of those who have left, between two rounds."""
        if len(self._recipients) < 2 * self._streams:
            return
        recipients = [recipient for recipient in self._recipients if recipient is not None]
        for at, recipient in enumerate(recipients):
            recipient.at = at
        self._recipients = [*recipients]
        self._sockets = [recipient.line.plain_socket or NOBODY for recipient in recipients]

    # --- Rounds

    def __call__(self) -> None:
        """Write to the next streams; after the last of a round begin another."""
        if self._at == self._end and not self._begin():
            return
        chunk, first = self._chunk, self._at
        assert chunk is not None, "a round has begun"
        streams_max = min(STREAMS_AT_ONCE, 1 + BYTES_AT_ONCE // len(chunk.framed))
        end = min(first + streams_max, self._end)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._at = end  # before they are written to: one that leaves now has the text
        if self._coding is Coding.GZIP:  # the only one with a checksum over all texts
            for recipient in self._recipients[first:end]:
                if recipient is not None and recipient.encoder is not None:
                    recipient.encoder.note(chunk.text)
        if self._asks_kernel:
            self._send_slow_away(first, end, chunk)
        streams = self._write(chunk.framed, first, end)
        # Mostly a round is all there is: to look for another costs as much as thirty writes.
        if end < self._end or not self.cohort.rests():
            self._scheduler.call_soon(self)
        else:
            self._chunk = None
        if streams:
            self._wrote(streams, chunk.size_bytes, loop.time() - began_s)

    def _begin(self) -> bool:
        """Take what is next; return False if there is nothing."""
        self._chunk = None
        if self.cohort.has_rows:  # first: for whoever takes by itself the next rows are its own
            self._end_draining()
        self._close_ranks()
        rows = self._take(self.cohort, FLUSH_BYTES_MAX) if self._streams else None
        if rows is None:
            return False
        self._begin_round(rows_text(rows, self._style))
        return True

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
        """Write to some streams; return to how many."""
        # Past the transports: nothing waits there, and their checks cost as much as a send. Where a
        # socket takes nothing, the transport finds out why.
        taken_bytes = self._send(self._sockets[first:end], framed)
        streams = end - first
        if taken_bytes.count(len(framed)) < streams:
            for at, taken in enumerate(taken_bytes, first):
                if self._recipients[at] is None:
                    streams -= 1
                elif taken < len(framed):
                    self._drain(at, framed[taken:])
        return streams

    def _drain(self, at: int, rest: bytes) -> None:
        """Leave bytes to the transport: it has time until the next text."""
        recipient = self._recipients[at]
        assert recipient is not None, "it has not left"
        recipient.line.write(rest)
        if recipient.line.connection.write_buffer_bytes:
            self._sockets[at] = NOBODY
            self._draining.append(recipient)

    def _end_draining(self) -> None:
        """Go on with those whose transports are empty again, and send the others away."""
        draining, self._draining = self._draining, []
        for recipient in draining:
            if recipient.at == LEFT:
                continue
            if recipient.line.connection.write_buffer_bytes:
                recipient.wakeup.wake()
            else:
                self._sockets[recipient.at] = recipient.line.plain_socket or NOBODY

    def _send_slow_away(self, first: int, end: int, chunk: SharedChunk) -> None:
        """Send those away whose peers have not taken what was written long ago."""
        for it in self._recipients[first:end]:
            if it is not None and it.line.connection.unsent_bytes > SMALL_BUFFERS_BYTES:
                it.line.write(chunk.framed)
                it.wakeup.wake()

    # --- Heartbeats

    def _await_beat(self) -> None:
        due_s = self._wrote_s + self._heartbeat_s
        if due_s < self._beat_s:
            self._beat_s = due_s
            self._scheduler.call_at(due_s, self._beat)

    def _beat(self) -> None:
        """Send a heartbeat to all, if there was nothing else for so long."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._beat_s or self.is_empty:
            return  # a later call is on its way, or nobody is left
        self._beat_s = INFINITY
        if now_s >= self._wrote_s + self._heartbeat_s:
            self._end_draining()
            if self._at == self._end and not self.is_empty:
                self._begin_round(HEARTBEAT)
            self._scheduler.call_soon(self)
        self._await_beat()
