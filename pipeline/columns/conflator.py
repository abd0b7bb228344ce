"""Conflation of messages as columns: blocks in, deliveries out, what is held carried between.

The engine's rules (docs/semantics) for a lane that sees every message: intervals of rules
interval-4 to interval-6, counts and first messages of rule delta-6, reducers and mergers of rule
merge-6. Where removals are told (the option `oof`) a key that came and went unseen counts with its
next row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.pipeline.columns.bodies import Bodies
from tidegate.pipeline.columns.intervals import Column, Interval, Runs, one_run_each, runs_of

PUT, DELETED, UNMATCHED, EXPIRED = range(4)
REASONS = (None, "deleted", "match", "expired")
FOREVER_NS = 2**63 - 1
NEVER_MS = -(2**63)


@dataclass(slots=True)
class Rows:
    """Messages as columns, each row one or more of a key.

    `times_ns` and `absent` (the key was not there before) are those of the first; `firsts` and
    `first_ms` (NEVER_MS: nobody knows) the position and time of publication of the first that is
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
        """No rows."""
        none = np.zeros(0, np.int64)
        columns = dict.fromkeys(_COLUMNS, none) | {"absent": none.astype(np.bool_)}
        return cls(**columns, values=bodies.begin(pa.array([], pa.binary())))

    def columns(self) -> dict[str, Column]:
        """All but the values."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def take(self, places: Column, bodies: Bodies) -> Rows:
        """Those at some places."""
        columns = {name: column[places] for name, column in self.columns().items()}
        return Rows(**columns, values=bodies.take(self.values, places))

    def then(self, later: Rows, bodies: Bodies) -> Rows:
        """Both, one after the other."""
        columns = {
            name: np.concatenate((column, getattr(later, name)))
            for name, column in self.columns().items()
        }
        return Rows(**columns, values=bodies.joined(self.values, later.values))


_COLUMNS = tuple(field.name for field in fields(Rows) if field.name != "values")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What goes out: rows, and when each is due."""

    rows: Rows
    due_ns: Column


class Conflator:
    """The state of one interval between blocks: a row for each key that is held.

    A key has several, in the order of their messages and with one time, where a merger declined.
    With `tells_removals` it also remembers which keys are there, and what nobody was told of.
    """

    def __init__(self, interval: Interval, bodies: Bodies, *, tells_removals: bool) -> None:
        self.bodies = bodies
        self.interval = interval
        self.held = Rows.none(bodies)
        self.there = np.zeros(0, np.bool_)
        self.untold: dict[int, Rows] = {}
        self._tells_removals = tells_removals

    def add(self, rows: Rows, until_ns: int) -> Deliveries:
        """The next messages in order of publication, and what is due by now.

        Times do not run back, and none is after `until_ns`.
        """
        rows = self.held.then(self._effective(rows), self.bodies)
        return self._release(rows, runs_of(self.interval, rows.codes, rows.times_ns), until_ns)

    def gather(self, rows: Rows) -> None:
        """The next messages, each held with what is held of its key; nothing goes out."""
        rows = self.held.then(self._effective(rows), self.bodies)
        runs = one_run_each(self.interval, rows.codes, rows.times_ns)
        self._release(rows, runs, -FOREVER_NS)

    def release(self, until_ns: int) -> Deliveries:
        """What is due by now."""
        rows = self.held
        return self._release(rows, runs_of(self.interval, rows.codes, rows.times_ns), until_ns)

    def finish(self) -> Deliveries:
        """All that is still held."""
        return self.release(FOREVER_NS)

    def _effective(self, rows: Rows) -> Rows:
        """Without removals of keys that are not there, and with what was there before each."""
        if not self._tells_removals:
            return rows.take(np.flatnonzero(rows.gone == PUT), self.bodies)
        count = int(rows.codes.max(initial=-1)) + 1
        if count > len(self.there):
            self.there = np.append(self.there, np.zeros(count - len(self.there), np.bool_))
        order = np.argsort(rows.codes, kind="stable")
        codes, put = rows.codes[order], rows.gone[order] == PUT
        is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
        before = np.where(is_first, self.there[codes], np.append(False, put)[:-1])
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
        is_held = parts.due_ns > until_ns
        told = self._told(found, is_held)
        held = np.flatnonzero(is_held)
        self.held = found.take(held[np.argsort(begun[held], kind="stable")], self.bodies)
        sent = np.flatnonzero(~is_held & told)
        return Deliveries(found.take(sent, self.bodies), parts.due_ns[sent])

    def _told(self, found: Rows, is_held: Column) -> Column:
        """Which rows are news; a key that came and went is not, and counts with its next row.

        The next row may be of the same interval, where a merger declined (rule account-5).
        """
        told: Column = (found.gone == PUT) | ~found.absent
        if not self.untold and told[~is_held].all():
            return told
        for place, code in enumerate(found.codes.tolist()):
            earlier = self.untold.pop(code, None)
            if earlier is not None:
                found.messages[place] += earlier.messages[0]
                found.firsts[place] = earlier.firsts[0]
                found.first_ms[place] = earlier.first_ms[0]
                self.bodies.put_before(found.values, place, earlier.values)
            if not told[place] and not is_held[place]:
                self.untold[code] = found.take(np.array([place]), self.bodies)
        return told


def _first_messages(rows: Rows, runs: Runs) -> Column:
    """Where the first message of each run stands; of removals alone, the last of them."""
    count = len(runs.order)
    places = np.where(rows.messages[runs.order] > 0, np.arange(count), count)
    first = np.minimum.reduceat(places, runs.starts)
    found: Column = runs.order[np.where(first < count, first, runs.ends - 1)]
    return found
