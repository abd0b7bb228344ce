"""Conflation of messages as columns: intervals, event time, and the request for both."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.keys.filter import Filter
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.bodies import Bodies, Merging, Newest
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import (
    Column,
    Interval,
    Runs,
    by_code,
    one_run_each,
    runs_of,
)
from tidegate.pipeline.json_fields.reducing import Folded

# --- the interval: blocks in, deliveries out, held rows carried between blocks
#
# The rules are the engine's for a lane that sees every message: intervals by interval-4 to
# interval-6, counts and first messages by delta-6, reducers and mergers by merge-6.

# Numbers, for they stand in columns; PUT is the only one that is no reason.
PUT, DELETED, UNMATCHED, EXPIRED = range(4)
REASONS = (None, "deleted", "match", "expired")
FOREVER_NS = 2**63 - 1
NEVER_MS = -(2**63)


@dataclass(slots=True)
class Rows:
    """Messages as columns, each row one or more of a key.

    `times_ns` and `absent` (the key was not there before) are those of the first; `firsts` and
    `first_ms` (NEVER_MS: unknown) the position and time of publication of the first that is
    no removal; `parts`, `lasts` (its position) and `gone` (PUT, or why it left) of the last.
    """

    codes: Column
    times_ns: Column
    messages: Column
    firsts: Column
    first_ms: Column
    parts: Column
    lasts: Column
    gone: Column
    absent: Column
    values: Any

    @classmethod
    def none(cls, bodies: Bodies) -> Rows:
        """Return no rows."""
        none = np.zeros(0, np.int64)
        columns = dict.fromkeys(_COLUMNS, none) | {"absent": none.astype(np.bool_)}
        return cls(**columns, values=bodies.begin(pa.array([], pa.binary())))

    def columns(self) -> dict[str, Column]:
        """Return all columns but the values."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def take(self, places: Column, bodies: Bodies) -> Rows:
        """Return those at some places."""
        columns = {name: column[places] for name, column in self.columns().items()}
        return Rows(**columns, values=bodies.take(self.values, places))

    def then(self, later: Rows, bodies: Bodies) -> Rows:
        """Return both, one after the other."""
        # Often nothing is held, and ten columns need no copy.
        if not len(self.codes):
            return later
        columns = {
            name: np.concatenate((column, getattr(later, name)))
            for name, column in self.columns().items()
        }
        return Rows(**columns, values=bodies.joined(self.values, later.values))


_COLUMNS = tuple(field.name for field in fields(Rows) if field.name != "values")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Rows that go out, and when each is due."""

    rows: Rows
    due_ns: Column


class Conflator:
    """The state of one interval between blocks: a row for each key that is held.

    A key has several, in the order of their messages and with one time, where a merger declined.
    With `sends_removals` it also remembers which keys are there, and rows that were never sent.
    """

    def __init__(self, interval: Interval, bodies: Bodies, *, sends_removals: bool) -> None:
        self.bodies = bodies
        self.interval = interval
        self.held = Rows.none(bodies)
        self.there = np.zeros(0, np.bool_)
        self.unsent = Rows.none(bodies)
        self._sends_removals = sends_removals

    def add(self, rows: Rows, until_ns: int) -> Deliveries:
        """Take the next messages in order of publication; return what is due by now.

        Times do not run back, and none is after `until_ns`.
        """
        rows = self.held.then(self._effective(rows), self.bodies)
        return self._release(rows, runs_of(self.interval, rows.codes, rows.times_ns), until_ns)

    def gather(self, rows: Rows) -> None:
        """Take the next messages and hold each with what is held of its key."""
        rows = self.held.then(self._effective(rows), self.bodies)
        runs = one_run_each(self.interval, rows.codes, rows.times_ns)
        self._release(rows, runs, -FOREVER_NS)

    def release(self, until_ns: int) -> Deliveries:
        """Return what is due by now."""
        rows = self.held
        return self._release(rows, runs_of(self.interval, rows.codes, rows.times_ns), until_ns)

    def finish(self) -> Deliveries:
        """Return all that is still held."""
        return self.release(FOREVER_NS)

    def _effective(self, rows: Rows) -> Rows:
        """Drop removals of absent keys; note for each row whether its key was there before."""
        if not self._sends_removals:
            is_put = rows.gone == PUT
            return rows if is_put.all() else rows.take(np.flatnonzero(is_put), self.bodies)
        count = int(rows.codes.max(initial=-1)) + 1
        if count > len(self.there):
            self.there = np.append(self.there, np.zeros(count - len(self.there), np.bool_))
        order = by_code(rows.codes)
        codes, put = rows.codes[order], rows.gone[order] == PUT
        is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
        before = np.where(is_first, self.there[codes], np.append(False, put)[:-1])
        # The first message of a run decides whether its key was there before the run.
        rows.absent[order] = ~before
        self.there[codes] = put  # of several messages of a key the last counts
        kept = np.zeros(len(codes), np.bool_)
        kept[order] = put | before
        return rows.take(np.flatnonzero(kept), self.bodies)

    def _release(self, rows: Rows, runs: Runs, until_ns: int) -> Deliveries:
        if not len(rows.codes):
            self.held = rows
            return Deliveries(rows, rows.times_ns)
        values, parts = self.bodies.of_runs(rows.values, runs)
        opened, last = parts.order[parts.starts], parts.order[parts.ends - 1]
        # Parts of a cut run keep the run's opening time, so that all fall due together.
        begun = opened if parts is runs else runs.order[runs.starts[runs.homes(parts.starts)]]
        first = _first_messages(rows, parts)
        found = Rows(
            rows.codes[opened],
            rows.times_ns[begun],
            np.add.reduceat(rows.messages[parts.order], parts.starts),
            rows.firsts[first],
            rows.first_ms[first],
            rows.parts[last],
            rows.lasts[last],
            rows.gone[last],
            rows.absent[opened],
            values,
        )
        due_ns, is_held = parts.due_ns, parts.due_ns > until_ns
        if self._sends_removals:
            found, kept = self._with_unsent(found, is_held)
            due_ns, is_held, begun = due_ns[kept], is_held[kept], begun[kept]
        held = np.flatnonzero(is_held)
        self.held = found.take(held[np.argsort(begun[held], kind="stable")], self.bodies)
        sent = np.flatnonzero(~is_held & _is_to_send(found))
        return Deliveries(found.take(sent, self.bodies), due_ns[sent])

    def _with_unsent(self, found: Rows, is_held: Column) -> tuple[Rows, Column]:
        """Return the rows with the unsent ones before them, and which of `found` they are.

        A key that came and went is not sent. The messages of such a row count with the key's next
        row, which may be of the same interval, where a merger declined (rule account-5).
        """
        is_unsent = ~(is_held | _is_to_send(found))
        before = self.unsent
        if not len(before.codes) and not is_unsent.any():
            return found, np.arange(len(found.codes))
        rows = before.then(found, self.bodies)
        goes_on = np.append(np.ones(len(before.codes), np.bool_), is_unsent)
        # A key's unsent row comes first, then its rows of this time in their order.
        order = by_code(rows.codes)
        codes = rows.codes[order]
        is_next = (codes[1:] == codes[:-1]) & goes_on[order[:-1]]
        starts = np.flatnonzero(np.append(True, ~is_next))
        runs = Runs(order, starts, np.append(starts, len(order))[1:], starts)
        first, last = order[starts], order[runs.ends - 1]
        columns = {name: column[last] for name, column in rows.columns().items()} | {
            "messages": np.add.reduceat(rows.messages[order], starts),
            "firsts": rows.firsts[first],
            "first_ms": rows.first_ms[first],
        }
        together = Rows(**columns, values=self.bodies.with_unsent(rows.values, runs))
        self.unsent = together.take(np.flatnonzero(goes_on[last]), self.bodies)
        kept = np.flatnonzero(~goes_on[last])
        return together.take(kept, self.bodies), last[kept] - len(before.codes)


def _is_to_send(rows: Rows) -> Column:
    """Return which rows say anything new: not those of a key that came and went."""
    is_new: Column = (rows.gone == PUT) | ~rows.absent
    return is_new


def _first_messages(rows: Rows, runs: Runs) -> Column:
    """Return where each run's first message is; for removals alone, the last of them."""
    count = len(runs.order)
    places = np.where(rows.messages[runs.order] > 0, np.arange(count), count)
    first = np.minimum.reduceat(places, runs.starts)
    found: Column = runs.order[np.where(first < count, first, runs.ends - 1)]
    return found


# --- event time: late messages, up to a watermark, in their own places
#
# A message is taken once the watermark has passed its effective time. That is the greatest of its
# own time, the watermark when it was published, and the effective times of earlier messages of
# its key. So no key ever goes back to an older message, no message is too late to count, and the
# cuts between blocks have no effect. The watermark is the greatest published time so far less
# `lateness_ns`; with a lateness of 0 this is the recorded clock, and a late message counts as now.

EARLIEST_NS = -(2**63)


class Timeline:
    """The messages of one stream that the watermark has not passed, in order of publication.

    Attributes:
        greatest_ns: the greatest time published so far.
        passed_ns: the watermark, which never runs back.
        waiting: one row a message, `times_ns` being effective.
    """

    def __init__(self, lateness_ns: int, bodies: Bodies) -> None:
        self.greatest_ns = EARLIEST_NS
        self.passed_ns = EARLIEST_NS
        self.waiting = Rows.none(bodies)
        self._bodies = bodies
        self._lateness_ns = lateness_ns

    def stamp(self, rows: Rows, greatest_ns: Column, clock_ns: int) -> None:
        """Give the next messages their effective times.

        Args:
            rows: one a message, in order of publication, with times of their own; EARLIEST_NS for
                what has none (removals), which count at the greatest time before them.
            greatest_ns: the greatest time of the piece up to each, other streams' too.
            clock_ns: the greatest time of the piece.
        """
        reached = np.maximum(greatest_ns, self.greatest_ns)
        own = np.where(rows.times_ns == EARLIEST_NS, reached, rows.times_ns)
        marks = np.maximum(self._marks(reached), self.passed_ns)
        rows.times_ns = np.maximum(own, marks)
        self.greatest_ns = max(self.greatest_ns, clock_ns)
        mark = int(self._marks(np.array([self.greatest_ns], np.int64))[0])
        self.passed_ns = max(self.passed_ns, mark)

    def take(self, rows: Rows) -> Rows:
        """Take stamped messages; return in order all that the watermark has passed."""
        return self._take(self.waiting.then(rows, self._bodies))

    def finish(self) -> Rows:
        """Return all that has waited; later messages count as no earlier."""
        self.passed_ns = self.greatest_ns
        return self._take(self.waiting)

    def _marks(self, reached_ns: Column) -> Column:
        """Return the watermarks at greatest times, without an overflow."""
        marks: Column = np.maximum(reached_ns, EARLIEST_NS + self._lateness_ns) - self._lateness_ns
        return marks

    def _take(self, pool: Rows) -> Rows:
        if self._lateness_ns and len(pool.codes):
            pool.times_ns = _not_back(pool.codes, pool.times_ns)
        # A stable sort below keeps the order of publication among equal times.
        ready = pool.times_ns <= self.passed_ns
        if ready.all() and not (pool.times_ns[1:] < pool.times_ns[:-1]).any():
            if len(self.waiting.codes):
                self.waiting = Rows.none(self._bodies)
            return pool
        taken = np.flatnonzero(ready)
        taken = taken[np.argsort(pool.times_ns[taken], kind="stable")]
        self.waiting = pool.take(np.flatnonzero(~ready), self._bodies)
        return pool.take(taken, self._bodies)


def _not_back(codes: Column, times_ns: Column) -> Column:
    """Return each time, or a later one that its key had before."""
    distinct, ranks = np.unique(times_ns, return_inverse=True)
    order = by_code(codes)
    steps = codes[order] * len(distinct) + ranks[order]
    raised = np.empty_like(times_ns)
    raised[order] = distinct[np.maximum.accumulate(steps) % len(distinct)]
    return raised


# --- the request: which messages become one, and how


@dataclass(frozen=True, slots=True)
class Conflation:
    """The messages to conflate, and how; `sends_removals` is the option `oof`.

    `merger` is the name of a registered one: what travels is the name, imported where it is needed.
    `time` is the field of event time; without one `time_ms` is the time. `lateness_ns` is how far
    the watermark stays behind. With `sets_aside` a line that is no record of the key, or has no
    time, is a row of its own with the reason; without, it is an error, and a field of the key
    that is missing counts as null. A line that is set aside for its length is longer than
    `line_bytes_max`.
    """

    key: KeySpec
    interval: Interval
    time: TimeField | None = None
    filter: Filter | None = None
    reduce: Reduce | None = None
    merger: str = ""
    sends_removals: bool = False
    topic: str = ""
    lateness_ns: int = 0
    sets_aside: bool = False
    line_bytes_max: int | None = None

    @property
    def is_newest(self) -> bool:
        """True if of several messages only the newest counts."""
        return not self.merger and (self.reduce is None or self.reduce.is_plain)

    @property
    def bodies(self) -> Bodies:
        """How bodies become one.

        Raises:
            DefinitionInvalid: the merger is not there.
        """
        if self.merger:
            return Merging(self.merger, self.key)
        if self.is_newest:
            return Newest()
        assert self.reduce is not None
        return Folded(self.reduce)

    def conflator(self) -> Conflator:
        """Return the state of a stream with nothing held."""
        return Conflator(self.interval, self.bodies, sends_removals=self.sends_removals)

    def timeline(self) -> Timeline:
        """Return the state of its event time with nothing waiting."""
        return Timeline(self.lateness_ns, self.bodies)
