"""Which messages become one delivery, for many messages at once.

The engine's rules for a lane (rules interval-4 to interval-6) computed over columns: loops run
only over openings of intervals, not over messages. Times are the recorded clock's, in nanoseconds,
in order of publication, and never run back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

MILLISECOND_NS = 1_000_000
TICK_NS_MAX = 50 * MILLISECOND_NS
TICKS_PER_INTERVAL = 20
_SHORT_MAX = 2**16 - 1
FEW_WALKS = 32

Column = NDArray[Any]
Times = TypeVar("Times", int, NDArray[Any])


class Pace(StrEnum):
    """The scope of an interval: one for all keys (`batch`), or one for each key (`key`; AMPS)."""

    BATCH = "batch"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of `interval_ns` and how it opens."""

    interval_ns: int
    pace: Pace

    @property
    def tick_ns(self) -> int:
        """The grid of due times, in nanoseconds.

        Keys that fall due within one tick are delivered together (rule interval-5).
        """
        if self.pace is Pace.BATCH:
            return 1
        return max(1, min(self.interval_ns // TICKS_PER_INTERVAL, TICK_NS_MAX))

    def due_ns(self, opened_ns: Times) -> Times:
        """Return when rows opened at these times go out: with `pace=key` at the end of a tick."""
        due = opened_ns + self.interval_ns
        if self.pace is Pace.KEY:
            due = -(-due // self.tick_ns) * self.tick_ns
        return due


@dataclass(frozen=True, slots=True)
class Runs:
    """Messages by key: `order` are their places, a run of them from `starts` to `ends` is one.

    `ends` are exclusive; `due_ns` says when each run goes out.
    """

    order: Column
    starts: Column
    ends: Column
    due_ns: Column

    def cut(self, starts: Column) -> Runs:
        """Return the runs cut into parts that begin at `starts`, which include the runs' own."""
        due_ns = self.due_ns[self.homes(starts)]
        return Runs(self.order, starts, np.append(starts, len(self.order))[1:], due_ns)

    def homes(self, starts: Column) -> Column:
        """Return the run of each part."""
        homes: Column = np.searchsorted(self.starts, starts, side="right") - 1
        return homes


def by_code(codes: Column) -> Column:
    """Return the places of messages by key, those of a key in their order."""
    # numpy sorts 16 bits by counting, several times as fast as it merges long integers.
    if codes.max(initial=0) <= _SHORT_MAX:
        codes = codes.astype(np.uint16)
    return np.argsort(codes, kind="stable")


def runs_of(interval: Interval, codes: Column, times_ns: Column) -> Runs:
    """Group messages in order of publication into deliveries; `codes` number keys from 0."""
    count = len(times_ns)
    order = by_code(codes)
    due_ns = interval.due_ns(times_ns)
    # The place of the first message at or after the end of an interval that a message opens.
    reach = np.searchsorted(times_ns, due_ns)
    if interval.pace is Pace.KEY:
        # Key and place in one number, so that one sorted search finds the place within the key.
        bases = codes[order].astype(np.int64) * (count + 1)
        seeds = np.flatnonzero(_changes(codes[order]))
        starts = _chase(np.searchsorted(bases + order, bases + reach[order]), seeds)
        opened = order[starts]
    else:
        openings = _chase(reach, np.zeros(min(count, 1), np.int64))
        interval_of = np.repeat(np.arange(len(openings)), np.diff(openings, append=count))[order]
        by_key = codes[order]
        starts = np.flatnonzero(_changes(by_key) | _changes(interval_of))
        opened = openings[interval_of[starts]]
    return Runs(order, starts, np.append(starts, count)[1:], due_ns[opened])


def one_run_each(interval: Interval, codes: Column, times_ns: Column) -> Runs:
    """Group all messages of a key into one delivery, due as its first message says."""
    order = by_code(codes)
    starts = np.flatnonzero(_changes(codes[order]))
    due_ns = interval.due_ns(times_ns[order[starts]])
    return Runs(order, starts, np.append(starts, len(order))[1:], due_ns)


def _chase(following: Column, seeds: Column) -> Column:
    """Return the places reached from the seeds by repeated steps to `following[place]`.

    A step never leads beyond the next seed.
    """
    is_reached = np.zeros(len(following) + 1, np.bool_)
    is_reached[seeds] = True
    is_reached[-1] = True
    # All walks a step at a time, until those that go on are too few for numpy to pay.
    places = seeds
    while len(places) > FEW_WALKS:
        places = following[places]
        places = places[~is_reached[places]]
        is_reached[places] = True
    # One by one, with a view in place of a list of all: a walk may skip most places.
    follow = following.data
    for place in places.tolist():
        reached = follow[place]
        while not is_reached[reached]:
            is_reached[reached] = True
            reached = follow[reached]
    return np.flatnonzero(is_reached[:-1])


def _changes(column: Column) -> Column:
    """Return whether each value differs from the one before it; the first one does."""
    changed = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=changed[1:])
    return changed
