"""Fan-out: which stream writes when, and one text to the streams of a whole cohort."""

from __future__ import annotations

import asyncio
import heapq
import math
import os
from collections.abc import Callable
from typing import Final, NamedTuple

from tidegate.app.delivery.compression import Coding, StreamEncoder, block
from tidegate.app.delivery.encoding import Style, chunk, rows_text
from tidegate.app.http.admission import HandedOver
from tidegate.app.http.connection import NO_DESCRIPTOR, Connection, WriteWatch
from tidegate.app.http.wire import HEARTBEAT
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.outputs import Rows

# How long streams may write before the loop looks at everything else.
TURN_S: Final = 0.005
# A larger text would be copied into the buffer of each slow peer: a cohort takes it in parts.
FLUSH_BYTES_MAX: Final = 1 << 20
# So many streams are written to between two looks at the clock: less than a millisecond.
STREAMS_AT_ONCE: Final = 64
# What a healthy socket may hold on its way; more than that waits.
SMALL_BUFFERS_BYTES: Final = 64 << 10
LEFT: Final = -2  # in the place of a descriptor

# A time that is further away than this is put off to the next multiple of GROUP_S: to wake the
# loop costs more than a heartbeat, and nobody misses a heartbeat by so little.
GROUPED_S: Final = 1.0
GROUP_S: Final = 0.05

INFINITY: Final = float("inf")


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


class Wakeup:
    """How the stream of one session learns that there is something to write.

    Attributes:
        on_woken: called in place of waking whoever waits.
    """

    __slots__ = ("_woken", "on_woken")

    def __init__(self) -> None:
        self.on_woken: Callable[[], None] | None = None
        # Made at its first use: most streams are called and wait for nothing.
        self._woken: asyncio.Event | None = None

    def wake(self) -> None:
        """Wake the stream: its session has outputs or notices for it alone."""
        if self.on_woken is None:
            self._event().set()
        else:
            self.on_woken()

    async def wait(self, seconds_max: float) -> bool:
        """Wait until the stream is woken; return False after `seconds_max`."""
        woken = self._event()
        try:
            async with asyncio.timeout(seconds_max):
                await woken.wait()
        except TimeoutError:
            return False
        woken.clear()
        return True

    def _event(self) -> asyncio.Event:
        if self._woken is None:
            self._woken = asyncio.Event()
        return self._woken


class StreamScheduler:
    """Calls the streams that have something to write, and those whose time has come.

    A flush wakes thousands of streams at once. They write in turns of a few milliseconds, so that
    other requests wait for a turn and not for the flush. One timer serves all: idle streams, which
    wait for their heartbeats, are called in groups.
    """

    def __init__(self) -> None:
        self._ready: dict[Callable[[], None], None] = {}
        self._is_called = False
        self._due: dict[float, list[Callable[[], None]]] = {}
        self._times: list[float] = []  # a heap of the times in `_due`
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = INFINITY

    def call_soon(self, stream: Callable[[], None]) -> None:
        """Call a stream in the loop's next turn, once however often this is asked."""
        self._ready[stream] = None
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def call_at(self, due_s: float, stream: Callable[[], None]) -> None:
        """Call a stream at a time of the loop's clock, in seconds, or a little later."""
        if due_s > asyncio.get_running_loop().time() + GROUPED_S:
            due_s = math.ceil(due_s / GROUP_S) * GROUP_S
        streams = self._due.get(due_s)
        if streams is not None:
            streams.append(stream)
            return
        self._due[due_s] = [stream]
        heapq.heappush(self._times, due_s)
        if due_s < self._timer_due_s:
            self._arm()

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + TURN_S
        # One that is not done asks again, and comes after the others that are ready.
        while self._ready:
            stream = next(iter(self._ready))
            del self._ready[stream]
            stream()
            if loop.time() > end_s:
                break
        self._is_called = bool(self._ready)
        if self._ready:
            loop.call_soon(self._turn)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due_s = None, INFINITY
        if self._times:
            self._timer_due_s = self._times[0]
            self._timer = asyncio.get_running_loop().call_at(self._timer_due_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._times and self._times[0] <= now_s:
            for stream in self._due.pop(heapq.heappop(self._times)):
                self.call_soon(stream)
        self._arm()


class Seat:
    """The place of a stream in a cohort.

    Args:
        session: of the stream.
        line: the connection; nothing waits in its transport.
        encoder: of an answer that is compressed.
        wrote_s: when the stream wrote last, by the loop's clock.
        on_sent_away: called once the stream has to write by itself again.
    """

    __slots__ = ("at", "encoder", "had_bytes", "line", "on_sent_away", "session", "wrote_s")

    def __init__(
        self,
        session: str,
        line: HandedOver,
        encoder: StreamEncoder | None,
        wrote_s: float,
        on_sent_away: Callable[[], None],
    ) -> None:
        self.session = session
        self.line = line
        self.encoder = encoder
        self.wrote_s = wrote_s
        self.on_sent_away = on_sent_away
        # The writer's: an index, and what it had written to each stream when this one came.
        self.at = 0
        self.had_bytes = 0


class CohortWriter:
    """Writes what a cohort takes to the sockets of all its streams, in one plain loop.

    A stream costs one system call, and nothing else: no object of its own is asked, no timer is
    set. Its counts are differences between two counts of the writer. A text goes out in turns of
    `STREAMS_AT_ONCE`, between which others are served; the next one is taken when all have it.

    Args:
        cohort: what takes, in the engine.
        style: how rows are written.
        coding: how the answers are compressed.
        take: takes for the cohort; None: nothing is left.
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
        # Side by side. A stream that leaves is struck out in both.
        self._seats: list[Seat | None] = []
        self._descriptors: list[int] = []
        self._streams = 0
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

    def enter(self, seat: Seat) -> None:
        """Write for a stream from here on; it has had all that its cohort has taken."""
        seat.at, seat.had_bytes = len(self._seats), self._bytes
        self._seats.append(seat)
        self._descriptors.append(seat.line.descriptor)
        self._streams += 1
        self._write_watch = seat.line.write_watch
        # One heartbeat for all: it comes when it is due for whoever has been silent longest.
        self._wrote_s = min(self._wrote_s, seat.wrote_s)
        self._await_beat()

    def leave(self, seat: Seat) -> int:
        """Let a stream write by itself; return the bytes that it got here.

        A text that the round under way has not brought it yet is written now: for the engine it
        has been taken.
        """
        owed = self._chunk if self._at <= seat.at < self._end else None
        self._strike_out(seat)
        if owed is not None and not seat.line.connection.is_closing:
            if seat.encoder is not None:
                seat.encoder.note(owed.text)
            seat.line.write(owed.framed)
        seat.wrote_s = max(seat.wrote_s, self._wrote_s)
        return self._bytes - seat.had_bytes

    def connections(self) -> list[Connection]:
        """Return the connections that it writes to, for the watch over their deadlines."""
        return [seat.line.connection for seat in self._seats if seat is not None]

    def _strike_out(self, seat: Seat) -> None:
        self._seats[seat.at] = None
        self._descriptors[seat.at] = LEFT
        self._streams -= 1

    def _close_ranks(self) -> None:
        """Forget the places of those who have left, between two rounds."""
        if len(self._seats) < 2 * self._streams:
            return
        seats = [seat for seat in self._seats if seat is not None]
        for at, seat in enumerate(seats):
            seat.at = at
        self._seats = [*seats]
        self._descriptors = [seat.line.descriptor for seat in seats]

    # --- Rounds

    def __call__(self) -> None:
        """Write to the next streams; after the last of a round begin another."""
        if self._at == self._end and not self._begin():
            return
        chunk, first, end = self._chunk, self._at, min(self._at + STREAMS_AT_ONCE, self._end)
        assert chunk is not None, "a round has begun"
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._at = end  # before they are written to: one that leaves now has the text
        if self._coding is Coding.GZIP:  # the only one with a checksum over all texts
            for seat in self._seats[first:end]:
                if seat is not None and seat.encoder is not None:
                    seat.encoder.note(chunk.text)
        if self._asks_kernel:
            self._send_slow_away(first, end, chunk)
        streams = self._write(chunk.framed, first, end)
        self._scheduler.call_soon(self)
        if streams:
            self._wrote(streams, chunk.size_bytes, loop.time() - began_s)

    def _begin(self) -> bool:
        """Take what is next; return False if there is nothing."""
        self._chunk = None
        self._close_ranks()
        rows = self._take(self.cohort, FLUSH_BYTES_MAX) if self._streams else None
        if rows is None:
            return False
        self._begin_round(rows_text(rows, self._style))
        return True

    def _begin_round(self, text: bytes) -> None:
        self._chunk = shared_chunk(text, self._coding)
        self._at, self._end = 0, len(self._seats)
        self._asks_kernel = self._unasked_bytes > SMALL_BUFFERS_BYTES
        self._unasked_bytes = 0 if self._asks_kernel else self._unasked_bytes
        self._unasked_bytes += self._chunk.size_bytes
        self._bytes += self._chunk.size_bytes
        self._wrote_s = asyncio.get_running_loop().time()
        assert self._write_watch is not None, "a stream has entered"
        self._write_watch.note_group(self.connections)

    def _write(self, framed: bytes, first: int, end: int) -> int:
        """Write to some streams; return to how many."""
        size_bytes, write, streams = len(framed), os.write, 0
        for at in range(first, end):
            descriptor = self._descriptors[at]
            if descriptor == LEFT:
                continue
            streams += 1
            if descriptor == NO_DESCRIPTOR:
                self._write_through(at, framed)
                continue
            try:
                # Past the transport: nothing waits there, and its checks cost as much as the call.
                taken_bytes = write(descriptor, framed)
            except OSError:  # a full socket, or one whose peer has left: the transport finds out
                taken_bytes = 0
            if taken_bytes < size_bytes:
                self._send_away(at, framed[taken_bytes:])
        return streams

    def _write_through(self, at: int, framed: bytes) -> None:
        """Write to the transport of a stream that is encrypted, or has no socket of its own."""
        seat = self._seats[at]
        assert seat is not None, "it has not left"
        seat.line.transport.write(framed)
        if seat.line.connection.write_buffer_bytes:
            self._send_away(at, b"")

    def _send_slow_away(self, first: int, end: int, chunk: SharedChunk) -> None:
        """Send those away whose peers have not taken what was written long ago."""
        for at, seat in enumerate(self._seats[first:end], first):
            if seat is not None and seat.line.connection.unsent_bytes > SMALL_BUFFERS_BYTES:
                self._send_away(at, chunk.framed)

    def _send_away(self, at: int, rest: bytes) -> None:
        """Leave a text's rest to the transport, and the stream to itself."""
        seat = self._seats[at]
        assert seat is not None, "it has not left"
        if rest:
            seat.line.write(rest)
        seat.on_sent_away()

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
            if self._at == self._end:
                self._begin_round(HEARTBEAT)
            self._scheduler.call_soon(self)
        self._await_beat()
