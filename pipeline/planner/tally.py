"""Counts of the messages that an interval would have sent; tallies of shards add up."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from tidegate.pipeline.intervals import MILLISECOND_NS, Column, Interval, runs_of

AGES_MAX = 10_000  # different ages that a tally keeps, whatever the interval
# Each shard gives its own: a key is in one shard, so the hottest of all are among them.
HOT_KEYS = 10
NOTHING = np.zeros(0, np.int64)


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


class IntervalTally:
    """Counts what one interval sends; what is still held is carried from block to block.

    An age is that of the first message in a row when it goes out, as everywhere (interval-8).
    For intervals above 10 s it is counted in steps of a ten-thousandth of the interval.
    """

    def __init__(self, interval: Interval) -> None:
        self._interval = interval
        self._step_ms = max(1, interval.interval_ns // (AGES_MAX * MILLISECOND_NS))
        self._codes, self._times, self._sizes = NOTHING, NOTHING, NOTHING
        self._messages = self._bytes = 0
        self._ages: Counter[int] = Counter()

    def add(self, codes: Column, times_ns: Column, sizes: Column) -> None:
        """Take the next messages, in order of publication."""
        if len(codes):
            self._advance(codes, times_ns, sizes, until_ns=int(times_ns[-1]))

    def finish(self) -> Sent:
        """Return all that was sent, once everything held is due."""
        if len(self._codes):
            self._advance(NOTHING, NOTHING, NOTHING, until_ns=None)
        return Sent(self._messages, self._bytes, dict(self._ages))

    def _advance(
        self, codes: Column, times_ns: Column, sizes: Column, until_ns: int | None
    ) -> None:
        codes = np.concatenate([self._codes, codes])
        times_ns = np.concatenate([self._times, times_ns])
        sizes = np.concatenate([self._sizes, sizes])
        runs = runs_of(self._interval, codes, times_ns)
        first, last = runs.order[runs.starts], runs.order[runs.ends - 1]
        held = np.zeros(len(first), np.bool_) if until_ns is None else runs.due_ns > until_ns
        self._count(runs.due_ns[~held] - times_ns[first[~held]], sizes[last[~held]])
        # A row for each key that is held: opened by its first message, weighing as its last.
        in_order = np.argsort(first[held])
        first, last = first[held][in_order], last[held][in_order]
        self._codes, self._times, self._sizes = codes[first], times_ns[first], sizes[last]

    def _count(self, ages_ns: Column, sizes: Column) -> None:
        self._messages += len(sizes)
        self._bytes += int(sizes.sum())
        step_ns = self._step_ms * MILLISECOND_NS
        ages, counts = np.unique((ages_ns + step_ns // 2) // step_ns, return_counts=True)
        self._ages.update(dict(zip((ages * self._step_ms).tolist(), counts.tolist(), strict=True)))


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
