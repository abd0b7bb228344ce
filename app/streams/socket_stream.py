"""An SSE stream that owns its connection. It needs no task or parser after the response header."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidegate.app.streams.compression import StreamEncoder
from tidegate.app.streams.connection import Connection, HandedOver, StreamTimes, WriteDeadline
from tidegate.app.streams.encoding import Style, chunk
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.fanout import LEFT, CohortWriter
from tidegate.app.streams.scheduler import BUDGET_S, INFINITY
from tidegate.conflation.outputs import CloseReason
from tidegate.keys.text.duration import Instant

POLL_UNSENT_S: Final = 0.25  # the time in which a large text reaches a healthy, distant peer

# What a client still sends is read for a moment: closing at once would reset the connection, and
# the client would lose the stream's last bytes.
LINGER_S: Final = 1.0
RECEIVED_BYTES_MAX: Final = 1 << 20

LAST_CHUNK: Final = b"0\r\n\r\n"


class SocketStream(asyncio.Protocol):
    """Writes a session's events to its transport, whenever it is woken or due.

    While its rows are those of its cohort, the cohort's `CohortWriter` writes to its socket.
    Writing pauses while the transport's buffer is full (`pause_writing`); a peer that takes nothing
    for `write_timeout` is cut.

    Args:
        writer: chooses what is written.
        times: how long it may be silent, and waits for its peer.
        encoder: compresses the answer; None: the answer is not compressed.
        on_ended: called once the connection is lost, with the bytes that were written.
    """

    __slots__ = (
        "_cohort", "_deadline", "_driver", "_due_s", "_is_closing", "_is_paused", "_line", "_loop",
        "_on_ended", "_received_bytes", "_sent_bytes", "_times", "_unrecorded", "_writer",
        "_writing_began", "at", "encoder", "had_bytes",
    )  # fmt: skip

    def __init__(
        self,
        writer: EventWriter,
        times: StreamTimes,
        encoder: StreamEncoder | None,
        on_ended: Callable[[int], None],
    ) -> None:
        self._line: HandedOver | None = None
        self._writer = writer
        self._driver = writer.reader.driver
        self._times = times
        self.encoder = encoder
        self._on_ended = on_ended
        self._sent_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._due_s = INFINITY
        self._is_paused = False
        self._is_closing = False
        self._deadline: WriteDeadline | None = None
        self._unrecorded = 0  # bytes of the text that is being written
        self._writing_began: Instant = 0
        self._received_bytes = 0
        self._cohort: CohortWriter | None = None
        self.at, self.had_bytes = LEFT, 0  # set by the cohort's writer

    def begin(self, line: HandedOver, head: bytes) -> None:
        """Write the answer's header and the first event, and then all present events."""
        self._line = line
        self._is_paused = line.is_paused
        reader = self._writer.reader
        reader.connection = line.connection
        reader.consumer.on_woken = self.wake
        # One write: each one wakes the peer, and is a system call.
        hello, encoder = self._writer.hello, self.encoder
        parts = [hello] if encoder is None else [encoder.header, encoder.block(hello)]
        self._sent_bytes += sum(map(len, parts))
        line.write(head + b"".join(chunk(part) for part in parts if part))
        self._writer.hello = b""  # frees it
        if self._is_paused:
            self._wait_for_room()
        else:
            self._pump()

    @property
    def line(self) -> HandedOver:
        """The connection, once the stream has begun."""
        assert self._line is not None
        return self._line

    @property
    def wrote_s(self) -> float:
        """When it wrote last, by the loop's clock; writes of its cohort do not count."""
        return self._writer.wrote_s

    @property
    def connection(self) -> Connection | None:
        """The connection below the transport."""
        return None if self._line is None else self._line.connection

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport, for a server that cuts its last connections when it stops."""
        return None if self._line is None else self._line.transport

    # What the server calls

    def shutdown(self) -> None:
        """Do nothing: the session's goodbye ends the stream."""

    # What the transport calls

    def data_received(self, received: bytes) -> None:
        """Ignore what a client sends during the stream; cut one that sends too much."""
        self._received_bytes += len(received)
        if self._received_bytes > RECEIVED_BYTES_MAX and self._line is not None:
            self._line.connection.abort()

    def eof_received(self) -> bool:
        """End the stream, as its client has left."""
        return False

    def pause_writing(self) -> None:
        """Stop writing until the transport has room."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Continue to write in the next iteration.

        Not here: if a write failed inside asyncio's own, it would report the loss of the connection
        twice, and log an error.
        """
        if self._line is not None and self._line.connection.has_kept:
            self._loop.call_soon(self._write_kept)
        else:
            self._has_room()

    def _write_kept(self) -> None:
        """Write what was kept; then continue unless the transport is full again."""
        self.line.connection.write_kept()
        if not self.line.connection.is_full:
            self._has_room()

    def _has_room(self) -> None:
        self._is_paused = False
        self._deadline = None
        self._writer.waited()
        self._call_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the session."""
        self._leave_cohort()
        self._leave_session(self.line.connection)
        self.line.leave(self)
        self._on_ended(self._sent_bytes)

    def _leave_session(self, connection: Connection) -> None:
        reader = self._writer.reader
        if connection.is_given_up:
            reader.consumer.give_up(CloseReason.WRITE_TIMEOUT)
        reader.consumer.on_woken = None
        reader.close()
        self._is_closing = True
        self._due_s = -INFINITY  # so that `_call_at` schedules no more calls

    # What the scheduler calls

    def wake(self) -> None:
        """Leave the cohort, if it has one, and write alone: it has other rows, or is too slow."""
        is_waiting = self._is_paused and self._cohort is None
        self._leave_cohort()
        if not is_waiting and not self._is_closing:
            self._write_alone()

    def _write_alone(self) -> None:
        if self._is_paused:
            self._wait_for_room()
        else:
            self._call_soon()

    def _call_soon(self) -> None:
        self._driver.streams.call_soon(self._pump, behind=self._has_many)

    @property
    def _has_many(self) -> bool:
        return len(self._writer.reader.styles) > 1

    def _pump(self) -> None:
        """Write until nothing is left, there is no room, or its time in this iteration is over."""
        now_s = self._loop.time()
        end_s = now_s + (BUDGET_S / 2 if self._has_many else BUDGET_S)
        if self._due_s <= now_s:
            self._due_s = INFINITY
        if self._cohort is not None:
            return  # this call was scheduled before it entered its cohort
        if self._is_closing:
            self._linger(now_s)
            return
        if self._is_paused:
            self._check_deadline(now_s)
            return
        driver, transport = self._driver, self.transport
        self._record_written()  # the text for which it has waited
        while not self._is_full():
            if transport is None or transport.is_closing():
                return  # the peer has left: `connection_lost` is called next
            text = self._writer.next(now_s)
            if not text:
                self._become_idle(now_s)
                return
            self._writing_began = driver.now()
            self._unrecorded = len(text)
            self._write(text)
            if not self._is_full():
                self._record_written()
            now_s = self._loop.time()
            # A fast peer takes a whole snapshot as it is made.
            if now_s > end_s and not self._is_full():
                self._call_soon()
                return
        self._wait_for_room()

    def _become_idle(self, now_s: float) -> None:
        writer = self._writer
        if writer.is_over:
            self._finish()
            return
        wait_s = writer.wait_s(now_s)
        style = writer.reader.plain_style
        if style is not None:
            if self._enter_cohort(style):
                return
            if writer.has_much_unsent:
                wait_s = min(wait_s, POLL_UNSENT_S)
        self._call_at(now_s + wait_s)

    # With its cohort

    def _enter_cohort(self, style: Style) -> bool:
        """Enter a cohort; return False if the peer is slow or its rows may differ."""
        if self._writer.has_much_unsent or self.line.connection.write_buffer_bytes:
            return False
        session, heartbeat_s = self._writer.reader.consumer.session, self._times.heartbeat_s
        self._cohort = self._driver.enter_cohort(session, self, style, heartbeat_s)
        if self._cohort is None:
            return False
        self._due_s = INFINITY
        return True

    def _leave_cohort(self) -> None:
        cohort, self._cohort = self._cohort, None
        if cohort is None:
            return
        session = self._writer.reader.consumer.session
        self._sent_bytes += self._driver.leave_cohort(session, self, cohort)
        self._writer.wrote_in_cohort(cohort.wrote_s)

    def _write(self, text: bytes) -> None:
        self._put(text if self.encoder is None else self.encoder.block(text))

    def _put(self, body: bytes) -> None:
        """Hand a chunk to the transport; its body's size counts, as under any other server."""
        if not body:
            return  # an empty chunk would end the answer
        self._sent_bytes += len(body)
        self.line.write(chunk(body))

    def _is_full(self) -> bool:
        return self._is_paused  # which a write may change, through the transport

    def _record_written(self) -> None:
        """Record that the socket has taken a text, and write `late` events about its rows."""
        if not self._unrecorded:
            return
        size_bytes, self._unrecorded = self._unrecorded, 0
        driver = self._driver
        driver.figures.wrote(size_bytes, driver.now() - self._writing_began)
        for late in self._writer.wrote(size_bytes, self._loop.time()):
            self._write(late)

    # Deadlines

    def _wait_for_room(self) -> None:
        now_s = self._loop.time()
        if self._deadline is None:
            self._deadline = self._times.deadline(self.line.connection.taken_mark, now_s)
        self._call_at(now_s + self._writer.observe_in_s(self._times.check_s))

    def _check_deadline(self, now_s: float) -> None:
        assert self._deadline is not None
        connection, reader = self.line.connection, self._writer.reader
        reader.note_unsent()
        self._writer.observe(connection, is_full=True)
        mark = connection.taken_mark
        if self._deadline.is_over(mark, now_s, is_closed=reader.is_closed_early):
            connection.give_up()
            # Now, within the time of streams: many peers may freeze at once, and asyncio reports
            # the loss of all their connections in one iteration.
            self._leave_session(connection)
        else:
            self._wait_for_room()

    def _call_at(self, due_s: float) -> None:
        """Schedule a call, unless an earlier one is scheduled."""
        if due_s < self._due_s:
            self._due_s = due_s
            self._driver.streams.call_at(due_s, self._pump, behind=self._has_many)

    # The end

    def _finish(self) -> None:
        """End the answer and the connection, once everything is sent."""
        transport = self.line.transport
        self._is_closing = True
        if self.encoder is not None:
            self._put(self.encoder.end())
        self.line.write(LAST_CHUNK)
        try:
            transport.write_eof()
        except (OSError, NotImplementedError):  # the peer has reset the connection, or it is TLS
            transport.close()
        else:
            self._call_at(self._loop.time() + LINGER_S)
        self._writer.reader.close()

    def _linger(self, now_s: float) -> None:
        """Close a connection once its client has the whole answer; the watch cuts frozen ones."""
        transport = self.line.transport
        if transport.get_write_buffer_size() and not transport.is_closing():
            self._call_at(now_s + LINGER_S)
        else:
            transport.close()
