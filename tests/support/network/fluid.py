"""A socket as a pipe of so many bytes a second, and a subscription with `auto` on it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from tidegate.conflation.auto import FRAMING_BYTES, STEPS_NS, Decision, InFlight, State, step
from tidegate.conflation.subscription import Auto
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant


@dataclass(frozen=True)
class Load:
    """What a topic's subscription has to write: a flush has a row for each key that changed."""

    messages_per_s: float
    keys: int
    row_bytes: int

    def flush_bytes(self, span_ns: Instant) -> int:
        """Bytes of the rows of so much time."""
        messages = max(1, round(self.messages_per_s * span_ns / SECOND))
        return min(self.keys, messages) * self.row_bytes

    def drains(self, interval_ns: int, bytes_per_s: float) -> float:
        """The share of an interval that its flush takes to drain."""
        drain_s = (self.flush_bytes(interval_ns) + FRAMING_BYTES) / bytes_per_s
        return drain_s * SECOND / interval_ns

    def first_that_drains(self, bytes_per_s: float, within: float = 1.0) -> int | None:
        """The shortest step whose flush drains in (that share of) its interval."""
        fits = (ns for ns in STEPS_NS if self.drains(ns, bytes_per_s) <= within)
        return next(fits, None)


@dataclass
class Pipe:
    """Serves writes one after the other; what it served is acknowledged a round trip later."""

    bytes_per_s: float
    round_trip_ns: int = 0
    noise: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    _writes: deque[tuple[float, float, int]] = field(default_factory=deque)
    _left_bytes: int = 0
    _free_at: float = 0.0

    def write(self, now: Instant, size_bytes: int) -> None:
        """Take all of it in."""
        free_at = self._writes[-1][1] if self._writes else self._free_at
        begin = max(float(now), free_at)
        factor = self.chance.uniform(1 - self.noise, 1 + self.noise)
        duration = size_bytes * SECOND / (self.bytes_per_s * factor)
        self._writes.append((begin, begin + duration, size_bytes))
        self._left_bytes += size_bytes

    def drop_backlog(self, now: Instant) -> None:
        """Forget what is written and not served: it is not what a test is about."""
        self._writes.clear()
        self._left_bytes, self._free_at = 0, float(now)

    def unsent_bytes(self, now: Instant) -> int:
        """What is not acknowledged at this moment."""
        at = now - self.round_trip_ns
        while self._writes and self._writes[0][1] <= at:
            self._free_at, self._left_bytes = (
                self._writes[0][1],
                self._left_bytes - self._writes[0][2],
            )
            self._writes.popleft()
        if not self._writes:
            return 0
        begin, end, size_bytes = self._writes[0]
        return int(self._left_bytes - size_bytes * max(0.0, (at - begin) / (end - begin)))


class Play:
    """One subscription on one pipe, in virtual time; `flushes` are its (time, interval, bytes)."""

    def __init__(
        self, load: Load, pipe: Pipe, bounds: Auto, *, room_bytes: int = 64 << 10, **at: int
    ) -> None:
        self.load = load
        self.pipe = pipe
        self.room_bytes = room_bytes
        self.state = State(bounds, at.get("interval_ns", bounds.min_ns))
        self.now: Instant = 0
        self.flushes: list[tuple[Instant, int, int]] = []
        self.decisions: list[Decision] = []
        self.looks = 0
        self._in_flight = InFlight()
        self._flush_due: Instant = 1
        self._flushed: Instant = 0

    def play(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + int(seconds * SECOND)
        while True:
            look = self.state.observation_due(self.now, self.pipe.round_trip_ns)
            is_full = self._flush_due <= self.now
            due = min(self.now + 5 * MILLISECOND if is_full else self._flush_due, until)
            if look is not None and self.now < look < due:
                due = look
            self.now = due
            if self.now >= until:
                return
            if self._flush_due <= self.now and self._has_room():
                self._flush()
            elif look is not None and look <= self.now:
                self._look(is_full=self._flush_due <= self.now)

    def _has_room(self) -> bool:
        return self.pipe.unsent_bytes(self.now) <= self.room_bytes

    def _look(self, flush_bytes: int = 0, *, is_full: bool = False) -> None:
        self.looks += 1
        self._in_flight.left(self.pipe.unsent_bytes(self.now))
        seen = self._in_flight.observed(
            self.now,
            self.state.interval_ns,
            round_trip_ns=self.pipe.round_trip_ns,
            flush_bytes=flush_bytes,
            is_full=is_full,
        )
        self.state, decision = step(self.state, seen)
        if decision is not None:
            self.decisions.append(decision)
            self._flush_due = min(self._flush_due, self.now + decision.to_ns)

    def _flush(self) -> None:
        size_bytes = self.load.flush_bytes(self.now - self._flushed)
        self.flushes.append((self.now, self.state.interval_ns, size_bytes))
        self._look(size_bytes)
        self.pipe.write(self.now, size_bytes + FRAMING_BYTES)
        self._in_flight.wrote(self.now, size_bytes)
        self._flushed = self.now
        silence_ns = int(SECOND / self.load.messages_per_s)
        wait_ns = self.state.interval_ns + (silence_ns if silence_ns > 20 * MILLISECOND else 0)
        self._flush_due = self.now + wait_ns
