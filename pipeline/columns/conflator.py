"""Conflation of messages as columns: blocks in, deliveries out, what is held carried between.

The engine's rules (docs/semantics.md) for a lane that sees every message: intervals of rules 14
to 16, counts and first messages of rule 212, reducers of rule 220. Where removals are told (the
option `oof`) a key that came and went unseen counts with its next row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from keys.reducers import Merged, Reduce
from pipeline.columns.intervals import Column, Interval, Runs, runs_of

PUT, DELETED, UNMATCHED = 0, 1, 2
REASONS = (None, "deleted", "match")
FOREVER_NS = 2**63 - 1


class Bodies(Protocol):
    """How the bodies of messages are kept and become one."""

    def begin(self, bodies: pa.Array) -> Any:
        """Bodies of messages, null for removals, as this keeps them."""

    def joined(self, held: Any, new: Any) -> Any:
        """One after the other."""

    def of_runs(self, kept: Any, runs: Runs) -> Any:
        """One for each run."""

    def take(self, kept: Any, places: Column) -> Any:
        """Those at some places."""

    def put_before(self, kept: Any, place: int, earlier: Any) -> None:
        """Let the one at a place stand for an earlier one too."""

    def shown(self, kept: Any) -> pa.Array:
        """As they are sent."""


class Newest:
    """The last body of a run: an Arrow column, of which only winners are ever copied."""

    def begin(self, bodies: pa.Array) -> pa.Array:
        """The column itself."""
        return bodies

    def joined(self, held: pa.Array, new: pa.Array) -> pa.Array:
        """One column."""
        return pa.concat_arrays([held, new])

    def of_runs(self, kept: pa.Array, runs: Runs) -> pa.Array:
        """The last of each."""
        return kept.take(pa.array(runs.order[runs.ends - 1]))

    def take(self, kept: pa.Array, places: Column) -> pa.Array:
        """Those at some places."""
        return kept.take(pa.array(places))

    def put_before(self, kept: pa.Array, place: int, earlier: Any) -> None:
        """Nothing of what is earlier shows."""

    def shown(self, kept: pa.Array) -> pa.Array:
        """The column itself."""
        return kept


class Folded:
    """Bodies combined by reducers; None for a removal."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce

    def begin(self, bodies: pa.Array) -> list[Merged | None]:
        """Each the beginning of a combination."""
        begin = self._reduce.begin
        return [None if body is None else begin(body) for body in bodies.to_pylist()]

    def joined(self, held: list[Merged | None], new: list[Merged | None]) -> list[Merged | None]:
        """One list."""
        return [*held, *new]

    def of_runs(self, kept: list[Merged | None], runs: Runs) -> list[Merged | None]:
        """Each run combined in order of publication."""
        by_key = [kept[place] for place in runs.order.tolist()]
        pairs = zip(runs.starts.tolist(), runs.ends.tolist(), strict=True)
        return [_combined(by_key[start:end]) for start, end in pairs]

    def take(self, kept: list[Merged | None], places: Column) -> list[Merged | None]:
        """Those at some places."""
        return [kept[place] for place in places.tolist()]

    def put_before(
        self, kept: list[Merged | None], place: int, earlier: list[Merged | None]
    ) -> None:
        """Combine with what was combined earlier."""
        kept[place] = _combined([*earlier, kept[place]])

    def shown(self, kept: list[Merged | None]) -> pa.Array:
        """The combined messages."""
        return pa.array([None if one is None else one.payload() for one in kept], pa.binary())


@dataclass(slots=True)
class Rows:
    """Messages as columns, each row one or more of a key.

    `times_ns` and `absent` (the key was not there before) are those of the first, `lasts` and
    `gone` (PUT, or why it left) of the last.
    """

    codes: Column
    times_ns: Column
    messages: Column
    firsts: Column
    lasts: Column
    gone: Column
    absent: Column
    values: Any

    @classmethod
    def of(
        cls, codes: Column, times_ns: Column, positions: Column, gone: Column, values: Any
    ) -> Rows:
        """Rows of one message, or one removal, each."""
        put = (gone == PUT).astype(np.int64)
        absent = np.zeros(len(codes), np.bool_)
        return cls(codes, times_ns, put, positions * put, positions, gone, absent, values)

    def columns(self) -> tuple[Column, ...]:
        """All but the values."""
        return (
            self.codes, self.times_ns, self.messages, self.firsts, self.lasts, self.gone,
            self.absent,
        )  # fmt: skip

    def take(self, places: Column, bodies: Bodies) -> Rows:
        """Those at some places."""
        columns = [column[places] for column in self.columns()]
        return self._joined(columns, bodies.take(self.values, places))

    def then(self, later: Rows, bodies: Bodies) -> Rows:
        """Both, one after the other."""
        pairs = zip(self.columns(), later.columns(), strict=True)
        columns = [np.concatenate(pair) for pair in pairs]
        return self._joined(columns, bodies.joined(self.values, later.values))

    @classmethod
    def _joined(cls, columns: Sequence[Column], values: Any) -> Rows:
        codes, times_ns, messages, firsts, lasts, gone, absent = columns
        return cls(codes, times_ns, messages, firsts, lasts, gone, absent, values)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What goes out: rows, and when each is due."""

    rows: Rows
    due_ns: Column


class Conflator:
    """The state of one interval between blocks: a row for each key that is held.

    With `tells_removals` it also remembers which keys are there, and what nobody was told of.
    """

    def __init__(self, interval: Interval, bodies: Bodies, *, tells_removals: bool) -> None:
        self.bodies = bodies
        self._interval = interval
        self._tells_removals = tells_removals
        self._there = np.zeros(0, np.bool_)
        self._untold: dict[int, tuple[int, int, Any]] = {}
        self._held = self._no_rows()

    def add(self, rows: Rows) -> Deliveries:
        """The next messages in order of publication, times not running back; what they end."""
        until_ns = int(rows.times_ns[-1]) if len(rows.codes) else -FOREVER_NS
        if self._tells_removals:
            rows = self._effective(rows)
        else:
            rows = rows.take(np.flatnonzero(rows.gone == PUT), self.bodies)
        return self._release(self._held.then(rows, self.bodies), until_ns)

    def finish(self) -> Deliveries:
        """All that is still held."""
        return self._release(self._held, FOREVER_NS)

    def _no_rows(self) -> Rows:
        none = np.zeros(0, np.int64)
        values = self.bodies.begin(pa.array([], pa.binary()))
        return Rows(none, none, none, none, none, none, none.astype(np.bool_), values)

    def _effective(self, rows: Rows) -> Rows:
        """Without removals of keys that are not there, and with what was there before each."""
        count = int(rows.codes.max(initial=-1)) + 1
        if count > len(self._there):
            self._there = np.append(self._there, np.zeros(count - len(self._there), np.bool_))
        order = np.argsort(rows.codes, kind="stable")
        codes, put = rows.codes[order], rows.gone[order] == PUT
        is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
        before = np.where(is_first, self._there[codes], np.append(False, put)[:-1])
        rows.absent[order] = ~before
        self._there[codes] = put  # of several messages of a key the last counts
        kept = np.zeros(len(codes), np.bool_)
        kept[order] = put | before
        return rows.take(np.flatnonzero(kept), self.bodies)

    def _release(self, rows: Rows, until_ns: int) -> Deliveries:
        if not len(rows.codes):
            return Deliveries(rows, rows.times_ns)
        runs = runs_of(self._interval, rows.codes, rows.times_ns)
        opened, last = runs.order[runs.starts], runs.order[runs.ends - 1]
        firsts = np.where(rows.messages > 0, rows.firsts, FOREVER_NS)[runs.order]
        firsts = np.minimum.reduceat(firsts, runs.starts)
        found = Rows(
            rows.codes[opened],
            rows.times_ns[opened],
            np.add.reduceat(rows.messages[runs.order], runs.starts),
            np.where(firsts == FOREVER_NS, rows.lasts[last], firsts),
            rows.lasts[last],
            rows.gone[last],
            rows.absent[opened],
            self.bodies.of_runs(rows.values, runs),
        )
        is_held = runs.due_ns > until_ns
        told = self._told(found, is_held)
        held = np.flatnonzero(is_held)
        self._held = found.take(held[np.argsort(opened[held])], self.bodies)
        sent = np.flatnonzero(~is_held & told)
        return Deliveries(found.take(sent, self.bodies), runs.due_ns[sent])

    def _told(self, found: Rows, is_held: Column) -> Column:
        """Which rows are news; a key that came and went is not, and counts with its next row."""
        told: Column = (found.gone == PUT) | ~found.absent
        if not self._untold and told[~is_held].all():
            return told
        for place, code in enumerate(found.codes.tolist()):
            earlier = self._untold.pop(code, None)
            if earlier is not None:
                messages, first, value = earlier
                found.messages[place] += messages
                found.firsts[place] = first
                self.bodies.put_before(found.values, place, value)
            if not told[place] and not is_held[place]:
                value = self.bodies.take(found.values, np.array([place]))
                self._untold[code] = (int(found.messages[place]), int(found.firsts[place]), value)
        return told


def _combined(parts: Sequence[Merged | None]) -> Merged | None:
    found: Merged | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else found.join(part)
    return found
