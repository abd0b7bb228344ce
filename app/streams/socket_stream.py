"""A stream that holds its connection: after the route has answered, no task and no parser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidegate.app.streams.compression import StreamEncoder
from tidegate.app.streams.connection import Connection, HandedOver, StreamTimes, WriteDeadline
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.encoding import Style, chunk
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.fanout import LEFT, CohortWriter
from tidegate.app.streams.scheduler import INFINITY, TURN_S
from tidegate.conflation.outputs import CloseReason
from tidegate.keys.text.duration import Instant

ASK_AGAIN_S: Final = 0.25  # what a large text needs to reach a healthy peer that is far away

# A client that goes on sending is read for a moment: closing at once would reset the connection,
# and the reset would take the stream's last bytes with it.
LINGER_S: Final = 1.0
RECEIVED_BYTES_MAX: Final = 1 << 20

LAST_CHUNK: Final = b"0\r\n\r\n"


class SocketStream(asyncio.Protocol):
    """Writes a session's events straight to its transport, whenever it is woken or due.

    While it has nothing of its own to write it is written to with its cohort. Writing stops
    while the transport's buffer is full (`pause_writing`) and goes on when the peer has taken it;
    a peer that takes nothing for `write_timeout` is cut.

    Args:
        writer: chooses what is written.
        driver: has the clock, the figures and the scheduler of streams.
        times: how long it may be silent, and waits for its peer.
        encoder: compresses the answer; None: the answer is not compressed.
        on_ended: called once the connection is gone, with the bytes that were written.
    """

    __slots__ = (
        "_cohort", "_deadline", "_driver", "_due_s", "_is_closing", "_is_paused", "_line", "_loop",
        "_on_ended", "_received_bytes", "_sent_bytes", "_times", "_unnoted", "_writer",
        "_writing_began", "at", "encoder", "had_bytes",
    )  # fmt: skip

    def __init__(
        self,
        writer: EventWriter,
        driver: Driver,
        times: StreamTimes,
        encoder: StreamEncoder | None,
        on_ended: Callable[[int], None],
    ) -> None:
        self._line: HandedOver | None = None
        self._writer = writer
        self._driver = driver
        self._times = times
        self.encoder = encoder
        self._on_ended = on_ended
        self._sent_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._due_s = INFINITY
        self._is_paused = False
        self._is_closing = False
        self._deadline: WriteDeadline | None = None
        self._unnoted = 0  # bytes of the text whose writing is under way
        self._writing_began: Instant = 0
        self._received_bytes = 0
        self._cohort: CohortWriter | None = None  # which writes to it
        self.at, self.had_bytes = LEFT, 0  # the writer's

    def begin(self, line: HandedOver, head: bytes) -> None:
        """Write the answer's header and the first event at once, then all that is there."""
        self._line = line
        self._is_paused = line.is_paused
        reader = self._writer.reader
        reader.connection = line.connection
        reader.consumer.on_woken = self.wake
        # One write: each of them wakes the peer, and costs a system call.
        hello, encoder = self._writer.hello, self.encoder
        parts = [hello] if encoder is None else [encoder.header, encoder.block(hello)]
        self._sent_bytes += sum(map(len, parts))
        line.write(head + b"".join(chunk(part) for part in parts if part))
        self._writer.hello = b""  # an idle stream keeps no bytes
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
        """When something was written last, by the loop's clock; not by its cohort."""
        return self._writer.wrote_s

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

    def resume_writing(self) -> None:
        """Go on writing, in the next iteration.

        Not from here: if a write fails while asyncio still ends its own, it loses the connection
        twice, and logs an error.
        """
        if self._line is not None and self._line.connection.has_kept:
            self._loop.call_soon(self._write_kept)
        else:
            self._has_room()

    def _write_kept(self) -> None:
        """Write what was kept, then go on unless the transport is full again: it will say so."""
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
        self._due_s = -INFINITY  # entries that are still in the heap find nothing to do

    # What the scheduler calls

    def wake(self) -> None:
        """Write by itself: there is something for it alone, or its cohort sends it away."""
        is_waiting = self._is_paused and self._cohort is None
        self._leave_cohort()
        if not is_waiting and not self._is_closing:
            self._go_on()

    def _go_on(self) -> None:
        """Write by itself again, when there is room."""
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
        """Write what there is until there is nothing more, no room, or others have their turn."""
        now_s = self._loop.time()
        end_s = now_s + (TURN_S / 2 if self._has_many else TURN_S)
        if self._due_s <= now_s:
            self._due_s = INFINITY
        if self._cohort is not None:
            return  # its cohort is written to; this call was asked for before
        if self._is_closing:
            self._linger(now_s)
            return
        if self._is_paused:
            self._check_deadline(now_s)
            return
        driver, transport = self._driver, self.transport
        self._written()  # what the socket had refused
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
            # A peer on a fast line takes a whole snapshot as it is made.
            if now_s > end_s and not self._is_full():
                self._call_soon()
                return
        self._wait_for_room()

    def _rest(self, now_s: float) -> None:
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
                wait_s = min(wait_s, ASK_AGAIN_S)
        self._call_at(now_s + wait_s)

    # With its cohort

    def _enter_cohort(self, style: Style) -> bool:
        """Let others like it be written to together with it; return False if there are none."""
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
            # Now, within the time of the streams: many peers freeze at once, and all of their
            # connections would be lost in one iteration.
            self._leave_session(connection)
        else:
            self._wait_for_room()

    def _call_at(self, due_s: float) -> None:
        """Be called then; an earlier call that is due already serves as well."""
        if due_s < self._due_s:
            self._due_s = due_s
            self._driver.streams.call_at(due_s, self._pump, behind=self._has_many)

    # The end

    def _finish(self) -> None:
        """End the answer and the connection: what is written is sent first."""
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
        """Close the connection of a client that has its answer and stays; the watch cuts others."""
        transport = self.line.transport
        if transport.get_write_buffer_size() and not transport.is_closing():
            self._call_at(now_s + LINGER_S)
        else:
            transport.close()
