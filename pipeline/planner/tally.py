"""Counts of the messages that an interval would have sent; tallies of shards add up.

A message is either the first of a row that goes out, or takes the place of the one before it of
its key. So all that an interval sends is known from its first messages, and no row is ever held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from tidegate.pipeline.intervals import (
    FEW_WALKS,
    MILLISECOND_NS,
    Column,
    Interval,
    Pace,
    by_code,
)

AGES_MAX = 10_000  # different ages that a tally keeps, whatever the interval
# Each shard gives its own: a key is in one shard, so the hottest of all are among them.
HOT_KEYS = 10
NOTHING = np.zeros(0, np.int64)
NEVER_NS = -(2**63)


class Sent(msgspec.Struct):
    """Messages and bytes that go out, and how many of them at which age in milliseconds."""

    messages: int = 0
    bytes: int = 0
    ages_ms: dict[int, int] = {}

    def plus(self, other: Sent) -> Sent:
        """Return the sum of both shards."""
        ages = Counter(self.ages_ms)
        ages.update(other.ages_ms)
        return Sent(self.messages + other.messages, self.bytes + other.bytes, dict(ages))

    def age_ms(self, percent: int) -> int | None:
        """Return the age that this percentage of rows does not exceed; None without rows."""
        rank = -(-self.messages * percent // 100)
        for age, count in sorted(self.ages_ms.items()):
            rank -= count
            if rank <= 0:
                return age
        return None


class Hot(msgspec.Struct, frozen=True):
    """A key and how many messages it has."""

    key: str
    messages: int


class Seen(msgspec.Struct):
    """Counts of the input: messages, bytes, keys, hottest keys, bytes of the newest messages."""

    messages: int = 0
    bytes: int = 0
    keys: int = 0
    memory_bytes: int = 0
    hot: list[Hot] = []

    def plus(self, other: Seen) -> Seen:
        """Return the sum of both shards; no key is in both."""
        return Seen(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.keys + other.keys,
            self.memory_bytes + other.memory_bytes,
            _hottest([*self.hot, *other.hot]),
        )


@dataclass(frozen=True)
class Arrivals:
    """Messages in order of publication, each with the time and size of its key's one before.

    Without one before it these are NEVER_NS and 0. `order` are the places of the messages by key,
    and a key's begin in it at one of `starts`.
    """

    codes: Column
    times_ns: Column
    sizes: Column
    before_ns: Column
    before_sizes: Column
    order: Column
    starts: Column

    @cached_property
    def keys(self) -> Column:
        """The code of each key, in the order of `starts`."""
        return self.codes[self.order[self.starts]]

    @cached_property
    def times_by_key(self) -> Column:
        """The times in the order of `order`."""
        return self.times_ns[self.order]

    @cached_property
    def before_by_key(self) -> Column:
        """The times before, in the order of `order`."""
        return self.before_ns[self.order]

    @cached_property
    def homes(self) -> Column:
        """The place of each message's key among `keys`, in the order of `order`."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.order)))

    @cached_property
    def _distinct_ns(self) -> Column:
        return self.times_ns[np.flatnonzero(np.diff(self.times_ns, prepend=NEVER_NS))]

    @cached_property
    def _ranks(self) -> Column:
        # Key and rank of the time in one number, which no time is too large for.
        ranks = np.searchsorted(self._distinct_ns, self.times_by_key)
        return self.homes * (len(self._distinct_ns) + 1) + ranks

    def first_at(self, homes: Column, times_ns: Column) -> Column:
        """Return for some keys the first place in `order` with a time, or where the key ends."""
        ranks = np.searchsorted(self._distinct_ns, times_ns)
        wanted = homes * (len(self._distinct_ns) + 1) + ranks
        places: Column = np.searchsorted(self._ranks, wanted)
        return places


class Succession:
    """Finds the message before each, of which the newest of each key are carried on."""

    def __init__(self) -> None:
        self._newest_ns, self._sizes = NOTHING, NOTHING

    def arrivals(self, codes: Column, times_ns: Column, sizes: Column) -> Arrivals:
        """Take the next messages, in order of publication; `codes` number the keys from 0."""
        order = by_code(codes)
        by_key = codes[order]
        starts = np.flatnonzero(np.diff(by_key, prepend=-1))
        keys = by_key[starts]
        last = order[np.append(starts[1:], len(order))[: len(starts)] - 1]
        self._newest_ns = _for_keys(self._newest_ns, keys, NEVER_NS)
        self._sizes = _for_keys(self._sizes, keys, 0)
        before_ns = _before(times_ns, order, starts, self._newest_ns[keys])
        before_sizes = _before(sizes, order, starts, self._sizes[keys])
        self._newest_ns[keys], self._sizes[keys] = times_ns[last], sizes[last]
        return Arrivals(codes, times_ns, sizes, before_ns, before_sizes, order, starts)


def _before(column: Column, order: Column, starts: Column, carried: Column) -> Column:
    found = np.empty(len(column), np.int64)
    found[order[1:]] = column[order[:-1]]
    found[order[starts]] = carried
    return found


def _for_keys(column: Column, keys: Column, filler: int) -> Column:
    """Return a column by code that has a place for each of these keys, the last the greatest."""
    more = int(keys[-1]) + 1 - len(column) if len(keys) else 0
    return np.append(column, np.full(more, filler)) if more > 0 else column


class IntervalTally:
    """Counts what one interval sends; when intervals end is carried from block to block.

    An age is that of the first message in a row when it goes out, as everywhere (interval-8).
    For intervals above 10 s it is counted in steps of a ten-thousandth of the interval.
    """

    def __init__(self, interval: Interval) -> None:
        self._interval = interval
        self._step_ms = max(1, interval.interval_ns // (AGES_MAX * MILLISECOND_NS))
        # Of the interval of all keys, or for each key of its own.
        self._opened_ns = NEVER_NS
        self._due_ns = NOTHING
        self._messages = self._bytes = 0
        self._ages = NOTHING

    def take(self, found: Arrivals) -> None:
        """Take the next messages, in order of publication; several intervals have the same."""
        if len(found.codes):
            by_key = self._interval.pace is Pace.KEY
            first, ages_ns = (self._first_by_key if by_key else self._first_of_all)(found)
            self._messages += len(first)
            # Every other message takes the place of the one before it.
            kept = found.before_sizes[first].sum() - found.before_sizes.sum()
            self._bytes += int(found.sizes.sum() + kept)
            self._count(ages_ns)

    def finish(self) -> Sent:
        """Return all that was sent, once everything held is due."""
        steps = np.flatnonzero(self._ages)
        ages = zip((steps * self._step_ms).tolist(), self._ages[steps].tolist(), strict=True)
        return Sent(self._messages, self._bytes, dict(ages))

    def _first_of_all(self, found: Arrivals) -> tuple[Column, Column]:
        """Return the places of first messages and their ages, where keys share the interval."""
        times_ns, count = found.times_ns, len(found.times_ns)
        due_ns = NEVER_NS
        if self._opened_ns != NEVER_NS:
            due_ns = self._interval.due_ns(self._opened_ns)
        openings = np.fromiter(_openings(self._interval, times_ns.data, 0, count, due_ns), np.int64)
        opened_ns = np.append(self._opened_ns, times_ns[openings])
        self._opened_ns = int(opened_ns[-1])
        # All that came before an interval has an earlier time than the message that opens it.
        opened_ns = np.repeat(opened_ns, np.diff(openings, prepend=0, append=count))
        first = np.flatnonzero(found.before_ns < opened_ns)
        return first, self._interval.due_ns(opened_ns[first]) - times_ns[first]

    def _first_by_key(self, found: Arrivals) -> tuple[Column, Column]:
        """Return the places of first messages and their ages, where each key has an interval."""
        times_ns = found.times_by_key
        self._due_ns = _for_keys(self._due_ns, found.keys, NEVER_NS)
        # After so long without a message the next is the first of a row, whatever was before.
        longest_ns = self._interval.interval_ns + self._interval.tick_ns
        is_first = times_ns >= found.before_by_key + longest_ns
        due_ns = self._due_ns[found.keys]
        is_first[found.starts] = times_ns[found.starts] >= due_ns
        is_edge = np.append(is_first, True)
        is_edge[found.starts] = True
        held = np.flatnonzero(~is_first[found.starts])
        seeds = np.flatnonzero(is_first & ~is_edge[1:])
        places = np.append(found.starts[held], seeds)
        due_ns = np.append(due_ns[held], self._interval.due_ns(times_ns[seeds]))
        while len(places) > FEW_WALKS:
            places = found.first_at(found.homes[places], due_ns)
            places = places[~is_edge[places]]
            is_edge[places] = is_first[places] = True
            places = places[~is_edge[places + 1]]
            due_ns = self._interval.due_ns(times_ns[places])
        for place, due in zip(places.tolist(), due_ns.tolist(), strict=True):
            end = place + 1 + int(np.argmax(is_edge[place + 1 :]))
            walk = _openings(self._interval, times_ns.data, place + 1, end, due)
            is_first[list(walk)] = True
        first = np.flatnonzero(is_first)
        opened_ns = times_ns[first]
        due_ns = self._interval.due_ns(opened_ns)
        # In order: of several of a key the last counts.
        self._due_ns[found.keys[found.homes[first]]] = due_ns
        return found.order[first], due_ns - opened_ns

    def _count(self, ages_ns: Column) -> None:
        step_ns = self._step_ms * MILLISECOND_NS
        counts = np.bincount((ages_ns + step_ns // 2) // step_ns, minlength=len(self._ages))
        counts[: len(self._ages)] += self._ages
        self._ages = counts


def _openings(
    interval: Interval, times_ns: memoryview, low: int, high: int, due_ns: int
) -> Iterator[int]:
    """Yield the places from `low` to `high` that open an interval, one after the other."""
    length_ns, tick_ns = interval.interval_ns, interval.tick_ns
    while (low := bisect_left(times_ns, due_ns, low, high)) < high:
        yield low
        due_ns = -(-(times_ns[low] + length_ns) // tick_ns) * tick_ns
        low += 1


class KeyTally:
    """Counts messages by key; `codes` number the keys from 0 without a hole."""

    def __init__(self) -> None:
        self._bytes = 0
        self._counts, self._newest = NOTHING, NOTHING

    def add(self, codes: Column, sizes: Column) -> None:
        """Take the next messages, in order of publication."""
        if not len(codes):
            return
        counts = np.bincount(codes, minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        newest = np.zeros(len(counts), np.int64)
        newest[: len(self._newest)] = self._newest
        newest[codes] = sizes  # of several messages of a key the last counts
        self._counts, self._newest = counts, newest
        self._bytes += int(sizes.sum())

    def finish(self, keys: list[str]) -> Seen:
        """Return all that was seen; `keys` are the texts of the codes."""
        hot = _hottest([Hot(keys[code], count) for code, count in _top(self._counts)])
        return Seen(int(self._counts.sum()), self._bytes, len(keys), int(self._newest.sum()), hot)


def _top(counts: Column) -> list[tuple[int, int]]:
    most = np.argsort(-counts, kind="stable")[:HOT_KEYS]
    return list(zip(most.tolist(), counts[most].tolist(), strict=True))


def _hottest(found: list[Hot]) -> list[Hot]:
    return sorted(found, key=lambda hot: (-hot.messages, hot.key))[:HOT_KEYS]
