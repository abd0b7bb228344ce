"""The event loop in short turns: timers and rested connections first, then a little of all else.

asyncio does in one turn all that is ready. Whoever asks now and then would wait for all that others
have asked for meanwhile, and a timer for all of it as well.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from operator import itemgetter
from typing import Any, Final

# What a turn does of all that has no precedence; what it has begun may take longer. Another turn
# costs some 10 us.
TURN_S: Final = 0.0005
# Of the events of rested connections; a request that is answered at once takes 0.2 ms or more.
RESTED_A_TURN_MAX: Final = 4


class TurnLoop(asyncio.SelectorEventLoop):
    """A loop with an order: timers that are due, rested connections, and all else as it came.

    Attributes:
        rested: descriptors of connections that have had an answer and ask for nothing, with a
            number that is lower the longer they rest.
    """

    # asyncio's own: what the turn is about to run, and a heap of the timers.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        self.rested: dict[int, int] = {}
        self._later: deque[asyncio.Handle] = deque()
        self._told: set[asyncio.Handle] = set()  # events of sockets among them
        self._rest_of_turn = asyncio.Handle(self._go_on, (), self)

    def _process_events(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Put what is ready in its order; asyncio calls this once it has looked for events."""
        ready, later, told = self._ready, self._later, self._told
        for _ in range(len(ready)):  # other threads append to it meanwhile
            if (handle := ready.popleft()) is not self._rest_of_turn:
                later.append(handle)
        self._take_timers()
        rested: list[tuple[int, asyncio.Handle]] = []
        for key, mask in events:
            reader, writer = key.data
            if mask & selectors.EVENT_READ and reader is not None and reader not in told:
                rests_since = self.rested.get(key.fd)
                if rests_since is not None:
                    rested.append((rests_since, reader))
                else:
                    told.add(reader)
                    later.append(reader)
            # The selector tells of an event in each turn until it is served.
            if mask & selectors.EVENT_WRITE and writer is not None and writer not in told:
                told.add(writer)
                later.append(writer)
        # Those that are left out are told of again.
        rested.sort(key=itemgetter(0))
        ready.extend(reader for _, reader in rested[:RESTED_A_TURN_MAX])
        if len(later) == 1:  # mostly: it needs no clock
            handle = later.popleft()
            told.discard(handle)
            ready.append(handle)
        elif later:
            ready.append(self._rest_of_turn)

    def _take_timers(self) -> None:
        # asyncio would have them run behind all else.
        scheduled, end_s = self._scheduled, self.time() + self._clock_resolution
        while scheduled and scheduled[0].when() < end_s:
            handle: Any = heapq.heappop(scheduled)
            handle._scheduled = False  # noqa: SLF001 - as asyncio does
            self._ready.append(handle)

    def _go_on(self) -> None:
        """Run what has no precedence, for half a millisecond or until a timer is due."""
        later, told = self._later, self._told
        end_s = self.time() + TURN_S
        if self._scheduled:
            end_s = min(end_s, self._scheduled[0].when())
        try:
            while later:
                handle: Any = later.popleft()
                told.discard(handle)
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - as asyncio does
                if self.time() >= end_s:
                    return
        finally:
            if later:  # so that the loop does not wait for events
                self._ready.append(self._rest_of_turn)
