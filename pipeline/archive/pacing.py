"""When messages of a replay are due, and which of them share a request.

The clock is given, so that a day's replay can be looked at in a moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pipeline.archive.recorded import Recorded
from pipeline.definitions.rate import Rate

MESSAGES_PER_REQUEST = 1_000
BYTES_PER_REQUEST = 4 * 1024 * 1024
TICK_S = 0.02  # messages due within one tick share a request, at its end
ROUNDING = 1e-6  # of a tick, by which sums of gaps may be off
BURST_S = 1.0
"""How far a replay that was held up may run ahead of its speed to make up for it."""


class Clock(Protocol):
    """Seconds that pass, and somebody who may have enough of it."""

    def now_s(self) -> float:
        """Seconds, never running back."""

    def wait(self, seconds: float) -> None:
        """Return after so long, or earlier when asked to stop."""

    @property
    def stopped(self) -> bool:
        """Whether somebody asked for the end."""


class Pacing:
    """Says when each message is due, one after the other; without a rate at once.

    A silence, recorded or following from the rate, lasts at most `gap_s_max`. The recorded clock
    never runs back.
    """

    def __init__(self, rate: Rate | None, gap_s_max: float | None, begun_s: float) -> None:
        self._gap_s = _gap_of(rate)
        self._gap_s_max = gap_s_max
        self._begun_s = self._last_s = begun_s
        self._before: Recorded | None = None

    def due_s(self, message: Recorded) -> float:
        """When this message may go, the one after that which went last; the first one at once."""
        if self._before is None:
            return self._last_s
        gap_s = self._gap_s(self._before, message)
        return self._last_s + (gap_s if self._gap_s_max is None else min(gap_s, self._gap_s_max))

    def tick_s(self, message: Recorded) -> float:
        """The end of the tick in which this message is due: later by a little, never sooner."""
        ticks = (self.due_s(message) - self._begun_s) / TICK_S
        return self._begun_s + math.ceil(ticks - ROUNDING) * TICK_S

    def went(self, message: Recorded, now_s: float) -> None:
        """A message goes."""
        self._last_s = max(self.due_s(message), now_s - BURST_S)
        self._before = message


def requests(
    messages: Iterable[Recorded],
    pacing: Pacing,
    clock: Clock,
    messages_max: int = MESSAGES_PER_REQUEST,
) -> Iterator[list[Recorded]]:
    """What each request carries, given out when it is due; ends early when asked to stop."""
    held: list[Recorded] = []
    held_bytes = 0
    for message in messages:
        due_s = pacing.tick_s(message)
        full = len(held) >= messages_max or held_bytes >= BYTES_PER_REQUEST
        if held and (full or due_s > clock.now_s()):
            yield held
            held, held_bytes = [], 0
        while (wait_s := due_s - clock.now_s()) > 0 and not clock.stopped:
            clock.wait(wait_s)
        if clock.stopped:
            break
        pacing.went(message, clock.now_s())
        held.append(message)
        held_bytes += message.size
    if held:
        yield held


def _gap_of(rate: Rate | None) -> Callable[[Recorded, Recorded], float]:
    """Seconds from one message to the next."""
    if rate is None:
        return lambda before, message: 0.0
    if rate.messages_per_s is not None:
        steady_s = 1 / rate.messages_per_s
        return lambda before, message: steady_s
    if rate.bytes_per_s is not None:
        per_byte_s = 1 / rate.bytes_per_s
        return lambda before, message: before.size * per_byte_s
    per_ms_s = 1 / 1000 / (rate.times or 1.0)
    return lambda before, message: (message.clock_ms - before.clock_ms) * per_ms_s
