"""A stream that holds its connection: after the route has answered, no task and no parser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidegate.app.delivery.compression import GzipStream
from tidegate.app.delivery.driver import Driver
from tidegate.app.delivery.encoding import chunk
from tidegate.app.delivery.fanout import INFINITY, Resting, SharedChunk, shared_chunk
from tidegate.app.http.admission import HandedOver
from tidegate.app.http.connection import Connection, WriteDeadline
from tidegate.app.http.wire import HEARTBEAT
from tidegate.app.sessions.event_writer import EventWriter
from tidegate.app.sessions.reader import SMALL_BUFFERS_BYTES
from tidegate.app.settings import Settings
from tidegate.conflation.outputs import CloseReason
from tidegate.keys.text.duration import Instant

LOOKS_PER_TIMEOUT: Final = 10
LOOKS_PER_FAREWELL: Final = 2
LOOK_S_MIN: Final = 0.02

# A client that goes on sending is read for a moment: closing at once would reset the connection,
# and the reset would take the stream's last bytes with it.
LINGER_S: Final = 1.0
RECEIVED_BYTES_MAX: Final = 1 << 20

LAST_CHUNK: Final = b"0\r\n\r\n"
HEARTBEAT_CHUNKS: Final = {
    is_gzip: shared_chunk(HEARTBEAT, is_gzip=is_gzip) for is_gzip in (False, True)
}


def look_interval_s(write_timeout_s: float, farewell_s: float) -> float:
    """Return how often a stream that waits to write looks at its deadline."""
    look_s = min(write_timeout_s / LOOKS_PER_TIMEOUT, farewell_s / LOOKS_PER_FAREWELL)
    return max(LOOK_S_MIN, look_s)


def write_deadline(settings: Settings, taken_mark: int, now_s: float) -> WriteDeadline:
    """Begin the deadline of a stream that waits to write, in either of its forms."""
    farewell_s = settings.shutdown_grace.seconds
    timeout_s = settings.write_timeout.seconds
    return WriteDeadline(timeout_s, taken_mark, now_s, farewell_s=farewell_s)


class SocketStream(asyncio.Protocol):
    """Writes a session's events straight to its transport, whenever it is woken or due.

    An idle stream is this object and an entry in the scheduler's heap. Writing stops while the
    transport's buffer is full (`pause_writing`) and goes on when the peer has taken it; a peer that
    takes nothing for `write_timeout` is cut.

    Args:
        writer: chooses what is written.
        driver: has the clock, the figures and the scheduler of streams.
        settings: deadlines.
        gzip: of an answer that is compressed.
        on_ended: called once the connection is gone, with the bytes that were written.
    """

    __slots__ = (
        "_call", "_deadline", "_driver", "_due_s", "_gzip", "_is_closing", "_is_paused", "_line",
        "_loop",
        "_on_ended", "_received_bytes", "_rest_bytes", "_rest_wrote_s", "_sent_bytes", "_settings",
        "_unnoted", "_wakeup", "_writer", "_writing_began",
    )  # fmt: skip

    def __init__(
        self,
        writer: EventWriter,
        driver: Driver,
        settings: Settings,
        gzip: GzipStream | None,
        on_ended: Callable[[int], None],
    ) -> None:
        self._line: HandedOver | None = None
        self._writer = writer
        self._driver = driver
        self._settings = settings
        self._gzip = gzip
        self._on_ended = on_ended
        self._sent_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._wakeup = writer.reader.consumer.wakeup
        self._call = self._pump  # one object, by which the scheduler knows the stream
        self._due_s = INFINITY
        self._is_paused = False
        self._is_closing = False
        self._deadline: WriteDeadline | None = None
        self._unnoted = 0  # bytes of the text whose writing is under way
        self._writing_began: Instant = 0
        self._received_bytes = 0
        # Written at rest since the last pump: how much, and when the last of it.
        self._rest_bytes = 0
        self._rest_wrote_s = 0.0

    def begin(self, line: HandedOver, head: bytes) -> None:
        """Write the answer's header and the first event at once, then all that is there."""
        self._line = line
        self._is_paused = line.is_paused
        reader = self._writer.reader
        reader.connection = line.connection
        self._wakeup.on_woken = self._woken
        # One write: each of them wakes the peer, and costs a system call.
        hello = self._writer.hello
        parts = [hello] if self._gzip is None else [self._gzip.header, self._gzip.block(hello)]
        self._sent_bytes += sum(map(len, parts))
        line.transport.write(head + b"".join(map(chunk, parts)))
        line.write_watch.note_write(line.connection)
        self._writer.hello = b""  # an idle stream keeps no bytes
        if self._is_paused:
            self._wait_for_room()
        else:
            self._pump()

    @property
    def connection(self) -> Connection | None:
        """What is below the transport."""
        return None if self._line is None else self._line.connection

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport, for a server that cuts what is left at its end."""
        return None if self._line is None else self._line.transport

    # What the server calls

    def shutdown(self) -> None:
        """Go on: the session's own goodbye ends the stream."""

    # What the transport calls

    def data_received(self, received: bytes) -> None:
        """Ignore what a client sends while it is served; cut one that never stops."""
        self._received_bytes += len(received)
        if self._received_bytes > RECEIVED_BYTES_MAX and self._line is not None:
            self._line.connection.abort()

    def eof_received(self) -> bool:
        """End the stream: nothing else would show that its client has left."""
        return False

    def pause_writing(self) -> None:
        """Write no more until the peer has taken what waits."""
        self._is_paused = True
        self._wakeup.resting = None

    def resume_writing(self) -> None:
        """Go on writing."""
        self._is_paused = False
        self._deadline = None
        self._writer.waited()
        self._written()
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the session."""
        reader, line = self._writer.reader, self._line
        assert line is not None
        if line.connection.is_given_up:
            reader.consumer.give_up(CloseReason.WRITE_TIMEOUT)
        self._wakeup.on_woken = self._wakeup.resting = None
        reader.close()
        self._is_closing = True
        self._due_s = -INFINITY  # entries that are still in the heap find nothing to do
        line.leave(self)
        self._on_ended(self._sent_bytes)

    # What the scheduler calls

    def _woken(self) -> None:
        if not self._is_paused and not self._is_closing:
            self._driver.streams.call_soon(self._call)

    def _write_flush(self, shared: SharedChunk, now_s: float) -> None:
        """Write a flush that many streams get, while this one rests."""
        # Every stream pays for each call here at every flush: what can wait is noted by `_pump`.
        line = self._line
        assert line is not None
        line.transport.write(shared.framed)
        line.write_watch.note_write(line.connection)
        if self._gzip is not None:
            self._gzip.note(shared.text)
        self._sent_bytes += shared.size_bytes
        self._rest_bytes += shared.size_bytes
        self._rest_wrote_s = now_s
        if self._is_paused:
            self._wait_for_room()
        elif self._rest_bytes > SMALL_BUFFERS_BYTES:
            self._wakeup.wake()

    def _pump(self) -> None:
        """Write what there is until there is nothing more, or no room."""
        now_s = self._loop.time()
        self._note_rest()
        if self._due_s <= now_s:
            self._due_s = INFINITY
        if self._wakeup.resting is not None and self._writer.plain_style is not None:
            self._beat(now_s)
            return
        self._wakeup.resting = None  # so much was written that the kernel is asked what it took
        if self._is_closing:
            self._linger(now_s)
            return
        if self._is_paused:
            self._check_deadline(now_s)
            return
        driver, transport = self._driver, self.transport
        while not self._is_full():
            if transport is None or transport.is_closing():
                return  # the peer has left: `connection_lost` comes next, and takes nothing
            text = self._writer.next(now_s)
            if not text:
                self._rest(now_s)
                return
            self._writing_began = driver.now()
            self._unnoted = len(text)
            self._write(text)
            if not self._is_full():
                self._written()
            now_s = self._loop.time()
        self._wait_for_room()

    def _beat(self, now_s: float) -> None:
        """Send the heartbeat that a stream at rest owes by now: nothing else can be due for it."""
        if self._writer.owes_heartbeat(now_s):
            heartbeat = HEARTBEAT_CHUNKS[self._gzip is not None]
            self._driver.figures.wrote(heartbeat.size_bytes, 0)
            self._write_flush(heartbeat, now_s)
            self._note_rest()
        self._call_at(now_s + self._writer.wait_s(now_s))

    def _note_rest(self) -> None:
        """Tell the writer what was written past it."""
        if self._rest_bytes:
            self._writer.wrote_at_rest(self._rest_bytes, self._rest_wrote_s)
            self._rest_bytes = 0

    def _rest(self, now_s: float) -> None:
        writer = self._writer
        if writer.is_over:
            self._finish()
            return
        self._call_at(now_s + writer.wait_s(now_s))
        style = writer.plain_style
        if style is not None:
            self._wakeup.resting = Resting(style, self._gzip is not None, self._write_flush)

    def _write(self, text: bytes) -> None:
        assert self._line is not None
        self._put(self._line, text if self._gzip is None else self._gzip.block(text))

    def _put(self, line: HandedOver, body: bytes) -> None:
        """Hand a chunk to the transport; its body's size counts, as under any other server."""
        self._sent_bytes += len(body)
        line.transport.write(chunk(body))
        line.write_watch.note_write(line.connection)

    def _is_full(self) -> bool:
        return self._is_paused  # which a write may change, through the transport

    def _written(self) -> None:
        """Note that the socket has taken a text, and say what is to be said of it."""
        if not self._unnoted:
            return
        size_bytes, self._unnoted = self._unnoted, 0
        driver = self._driver
        driver.figures.wrote(size_bytes, driver.now() - self._writing_began)
        for late in self._writer.wrote(size_bytes, self._loop.time()):
            self._write(late)

    # Deadlines

    def _wait_for_room(self) -> None:
        assert self._line is not None
        settings = self._settings
        now_s = self._loop.time()
        if self._deadline is None:
            self._deadline = write_deadline(settings, self._line.connection.taken_mark, now_s)
        look_s = look_interval_s(settings.write_timeout.seconds, settings.shutdown_grace.seconds)
        self._call_at(now_s + self._writer.look_in_s(look_s))

    def _check_deadline(self, now_s: float) -> None:
        assert self._line is not None
        assert self._deadline is not None
        connection, reader = self._line.connection, self._writer.reader
        reader.note_unsent()
        self._writer.look(connection, is_full=True)
        mark = connection.taken_mark
        if self._deadline.is_over(mark, now_s, is_closed=reader.is_sent_away):
            connection.give_up()
        else:
            self._wait_for_room()

    def _call_at(self, due_s: float) -> None:
        """Be called then; an earlier call that is due already serves as well."""
        if due_s < self._due_s:
            self._due_s = due_s
            self._driver.streams.call_at(due_s, self._call)

    # The end

    def _finish(self) -> None:
        """End the answer and the connection: what is written is sent first."""
        assert self._line is not None
        transport = self._line.transport
        self._is_closing = True
        if self._gzip is not None:
            self._put(self._line, self._gzip.end())
        transport.write(LAST_CHUNK)
        try:
            transport.write_eof()
        except (OSError, NotImplementedError):  # the peer has reset the connection, or it is TLS
            transport.close()
        else:
            self._call_at(self._loop.time() + LINGER_S)
        self._writer.reader.close()

    def _linger(self, now_s: float) -> None:
        """Close the connection of a client that has its answer and stays; the watch cuts others."""
        assert self._line is not None
        transport = self._line.transport
        if transport.get_write_buffer_size() and not transport.is_closing():
            self._call_at(now_s + LINGER_S)
        else:
            transport.close()
