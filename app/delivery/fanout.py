"""Fan-out: which stream writes when, and one flush to the streams of all its members."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidegate.app.delivery.compression import Coding, block
from tidegate.app.delivery.encoding import Style, chunk, shared_text
from tidegate.conflation.engine import Engine
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import SharedFlush

# How long streams may write before the loop looks at everything else.
TURN_S: Final = 0.005
# A larger flush would be copied into the buffer of each slow peer: streams take it in parts.
FLUSH_BYTES_MAX: Final = 1 << 20
# So many members are written to between two looks at the clock: less than a millisecond.
MEMBERS_AT_ONCE: Final = 32

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


class Resting(NamedTuple):
    """A stream that has written all it had, has room, and needs no look at what it writes next.

    Args:
        style: how it writes rows.
        coding: how its answer is compressed.
        write: writes a chunk, at a time of the loop's clock.
    """

    style: Style
    coding: Coding
    write: Callable[[SharedChunk, float], None]


class Wakeup:
    """How the stream of one session learns that there is something to write.

    Attributes:
        on_woken: called in place of waking whoever waits.
        resting: how a flush may be written past the stream. A stream sets it when it comes to rest;
            whatever wakes the stream ends the rest.
    """

    __slots__ = ("_woken", "on_woken", "resting")

    def __init__(self) -> None:
        self.on_woken: Callable[[], None] | None = None
        self.resting: Resting | None = None
        # Made at its first use: most streams are called and wait for nothing.
        self._woken: asyncio.Event | None = None

    def wake(self) -> None:
        """Wake the stream: its session has outputs or notices."""
        self.resting = None
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


class FlushWriter:
    """Writes one flush to the streams of its members, some in each call, until all have it.

    A stream at rest gets the lane's bytes as they are: for each member this costs one question to
    the engine and one write. Any other stream is woken and takes for itself.

    Args:
        flush: what is written.
        engine: says which members the flush is still for.
        wakeups: by session.
        sent: called after some members, with the sessions written to, the bytes of each body and
            how long it took in all, in seconds.
        streams: calls again while members are left.
    """

    __slots__ = ("_chunks", "_engine", "_flush", "_members", "_sent", "_streams", "_wakeups")

    def __init__(
        self,
        flush: SharedFlush,
        engine: Engine,
        wakeups: dict[str, Wakeup],
        sent: Callable[[list[str], list[int], float], None],
        streams: StreamScheduler,
    ) -> None:
        self._flush = flush
        self._engine = engine
        self._wakeups = wakeups
        self._sent = sent
        self._streams = streams
        self._members = iter(flush.members)
        self._chunks: dict[tuple[str, Coding], SharedChunk] = {}

    def __call__(self) -> None:
        """Write to the next members."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        members = list(itertools.islice(self._members, MEMBERS_AT_ONCE))
        sessions, sizes_bytes = [], []
        for member, (style, coding, write) in self._taken(members):
            shared = self._chunk(style, coding)
            write(shared, began_s)
            sessions.append(member.session)
            sizes_bytes.append(shared.size_bytes)
        if len(members) == MEMBERS_AT_ONCE:
            self._streams.call_soon(self)
        self._sent(sessions, sizes_bytes, loop.time() - began_s)

    def _taken(self, members: Iterable[Member]) -> list[tuple[Member, Resting]]:
        """Return the members that the flush is for as it is, and wake the others."""
        at_rest: list[tuple[Member, Resting]] = []
        wakeups = self._wakeups
        is_large = self._flush.batch.payload_bytes > FLUSH_BYTES_MAX
        for member in members:
            wakeup = wakeups.get(member.session)
            if wakeup is None:
                continue  # its stream has ended
            if wakeup.resting is None or is_large:
                wakeup.wake()
            else:
                at_rest.append((member, wakeup.resting))
        asked = [member for member, _ in at_rest]
        answers = self._engine.sent(self._flush, asked)
        if all(answers):
            return at_rest
        for member, is_taken in zip(asked, answers, strict=True):
            if not is_taken:
                wakeups[member.session].wake()
        return list(itertools.compress(at_rest, answers))

    def _chunk(self, style: Style, coding: Coding) -> SharedChunk:
        """Return the flush as a style writes it, made for the first of the streams that ask."""
        kind = style.variant, coding
        shared = self._chunks.get(kind)
        if shared is None:
            text = shared_text(self._flush, style)
            shared = self._chunks[kind] = shared_chunk(text, coding)
        return shared
