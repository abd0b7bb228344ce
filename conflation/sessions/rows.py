"""Rows that one subscriber is sent before those of its lane, and its position in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import (
    MADE_AT_ONCE,
    ROWS_AT_ONCE,
    Batch,
    Frame,
    Row,
    prefix_within,
    receipt_of,
    sent_bytes,
)
from tidegate.conflation.lanes.accumulate import CombinedRow, Unreported, unreported_of
from tidegate.conflation.lanes.member import Backlog
from tidegate.conflation.outputs import Resumed
from tidegate.conflation.steps import RowBuild, Steps, in_steps
from tidegate.conflation.subscription import LaneId
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant
from tidegate.keys.text.rate import Rate


@dataclass(slots=True, eq=False)
class RowCursor:
    """A position in rows that are pulled as the socket drains, and never queued.

    One class serves four sources. They differ in what fills `rows`, and in the fields they use:

        snapshot   the records at a subscription's cut; they replace what the client holds
        replay     what was published since a bookmark; an archive may supply `rows` in pieces
        catch-up   what a lane had for a subscriber that left it, or an answer too large for a take
        drain      what is queued for a subscription that has ended

    Attributes:
        rows: all rows, as references: a large snapshot costs a pointer a row.
        through: the offset that a client has everything up to once all rows are out; the last
            piece carries it as its id. None where more is queued after these rows.
        keys: of a catch-up, the key by which each row is put together with others (`collapsing`).
        is_snapshot: the rows are in a group, whose end carries the id.
        is_in_order: the rows are in the order of their offsets, so each piece carries an id, and a
            reader whose connection breaks does not begin a long answer again.
        resumed: what the client is sent before the first row.
        batch_size: rows in a piece at most; None for no bound but bytes.
        shown: selects the fields of a row; applied at the take, so that `rows` are references.
        pacing: when each row of a replay is due; `deadline` is then the time of the next one.
        build: makes `rows`, if that takes several steps; equal cursors share it.
        is_building: `build` is not done; until `complete` there is nothing to take.
        has_more: of a catch-up, another part of the same flush follows its rows.
        has_begun: `resumed` and the begin of the group were sent.
        is_done: a take has reached the end; also an empty group has to be taken once.
    """

    rows: Sequence[Frame]
    through: int | None = None
    keys: Sequence[str] = ()
    is_snapshot: bool = False
    is_in_order: bool = False
    resumed: Resumed | None = None
    batch_size: int | None = None
    shown: Callable[[Frame], Frame] | None = None
    pacing: Pacing | None = None
    deadline: Instant | None = None
    build: RowBuild | None = None
    is_building: bool = False
    has_more: bool = False
    sent: int = 0
    has_begun: bool = False
    is_done: bool = False

    @classmethod
    def catch_up(cls, pairs: Sequence[Pair], through: int | None) -> RowCursor:
        """Return a cursor over rows with the keys by which they are put together."""
        return cls([row for _, row in pairs], through, [key for key, _ in pairs])

    def take(self, bytes_max: int, now: Instant) -> Batch:
        """Return the next piece: about `bytes_max` of payload, and what is due at `now`."""
        # A bounded slice: copying all rows that are left for each piece would be quadratic.
        most = ROWS_AT_ONCE if self.shown is None else MADE_AT_ONCE
        stop = self.sent + min(self.batch_size or most, most)
        rows = self._due(self.rows[self.sent : stop], now)
        rows = rows[: prefix_within(rows, bytes_max)]  # at least one, however large it is
        if self.pacing is not None:
            for row in rows:
                self.pacing.went(row, now)
        since, self.sent = self.sent, self.sent + len(rows)
        self.is_done = self.is_out
        low_water = None if self.is_snapshot else self._low_water(rows)
        shown = rows if self.shown is None else [self.shown(row) for row in rows]
        return Batch(shown, since, self.sent, low_water)

    def _low_water(self, rows: Sequence[Frame]) -> int | None:
        """Return the offset up to which all rows are sent after a piece; None if unknown."""
        if self.is_done:
            return self.through
        if not self.is_in_order or not rows:
            return None
        last = rows[-1].offset
        return last if last < self.rows[self.sent].offset else None

    @property
    def is_out(self) -> bool:
        """True once no row is left."""
        return self.sent == len(self.rows)

    @property
    def left(self) -> Sequence[Frame]:
        """The rows still to come."""
        return self.rows[self.sent :]

    @property
    def pairs_left(self) -> list[Pair]:
        """The rows still to come, with their keys."""
        return list(zip(self.keys[self.sent :], self.left, strict=True))

    def refill(self, rows: Sequence[Frame], keys: Sequence[str] = ()) -> None:
        """Continue with other rows, from their beginning."""
        self.rows, self.keys = rows, keys
        self.sent, self.is_done = 0, False

    def begin(self, build: RowBuild) -> None:
        """Run the first step of a build, whose rows will replace the present ones."""
        self.build, self.is_building = build, True
        if build.step():
            self.complete()

    def complete(self) -> None:
        """Run the remaining steps of the build, if there are any, and take over its rows."""
        if self.build is not None and self.is_building:
            self.build.finish()
            self.refill(self.build.rows or (), self.build.keys)
            self.is_building = False

    def waiting(self) -> int:
        """Return how many deliveries are still to come."""
        under_way = self.build.deliveries() if self.build is not None and self.is_building else 0
        return under_way + deliveries(self.left)

    def queued(self) -> tuple[int, int]:
        """Return how many rows are still to come, and their bytes."""
        left = self.left
        return len(left), sum(map(sent_bytes, left))

    def conflate(self, rules: LaneId, board: Board) -> list[tuple[str, Unreported]]:
        """Conflate the rows that are left by a topic's rules; return messages no row reports."""
        self.complete()
        # The class that conflates queues: these rows may be the first part of one.
        backlog = Backlog(rules)
        backlog.absorb(self.left, board.held_at)
        unseen = backlog.pop_unseen()
        rows = backlog.rows()
        self.refill(rows, [row.key for row in rows])
        return unseen

    def _due(self, rows: Sequence[Frame], now: Instant) -> Sequence[Frame]:
        self.deadline = None
        if self.pacing is None or not rows:
            return rows
        due = self.pacing.due(rows[0])
        if due > now:
            self.deadline = due
            return ()
        return rows[:1]  # one at a time: the next row's time depends on when this one is sent


def deliveries(rows: Iterable[Frame]) -> int:
    """Return how many rows count as delivered.

    A removal has no value. A row that stands for no message was added by a change of filter: it was
    published before, so it is no delivery of this subscription.
    """
    return sum(not (row.removed or (isinstance(row, Row) and not row.messages)) for row in rows)


# --- The speed of a replay


BURST_NS = SECOND
"""A replay that was delayed catches up on at most so much time by running ahead of its rate."""


class Pacing:
    """When each row of a replay is due: messages or bytes a second, or times recorded speed."""

    def __init__(self, rate: Rate, now: Instant) -> None:
        self._rate = rate
        self._last: Instant = now
        self._before: Frame | None = None

    def due(self, row: Frame) -> Instant:
        """Return when this row may follow the one that was sent last; the first is due at once."""
        return self._last if self._before is None else self._last + self._gap_ns(self._before, row)

    def went(self, row: Frame, now: Instant) -> None:
        """Record that a row is sent now."""
        # Measured from when the row was due, so that late takes do not lower the mean rate.
        self._last = max(self.due(row), now - BURST_NS)
        self._before = row

    def _gap_ns(self, before: Frame, row: Frame) -> int:
        rate = self._rate
        if rate.messages_per_s is not None:
            gap_ns = SECOND // rate.messages_per_s
        elif rate.bytes_per_s is not None:
            gap_ns = len(before.payload) * SECOND // rate.bytes_per_s
        else:
            recorded_ns = max(0, row.timestamp_ms - before.timestamp_ms) * MILLISECOND
            # Wall time may step back between two messages, a replay does not.
            gap_ns = int(recorded_ns / (rate.times or 1))
        return gap_ns if rate.max_gap_ns is None else min(gap_ns, rate.max_gap_ns)


# --- Rows of several lanes, put together


def collapsing(pairs: Sequence[Pair]) -> Steps[list[Pair]]:
    """Put rows of each key together, in the order of last change.

    Of values that replace one another the last one remains, and stands for the earlier ones too.
    Combined values are joined; those that cannot be joined (other rules, a merger that declines)
    all remain. The value before a removal remains: without it the removal would be of a key that
    was never sent. A row that must not be conflated keeps its place.
    """
    rows = _RowsByKey()

    def add(piece: Sequence[Pair]) -> tuple[Pair, ...]:
        for board_key, row in piece:
            rows.add(board_key, row)
        return ()

    yield from in_steps(pairs, add)
    return rows.pairs()


class _RowsByKey:
    """Rows in their order, and for each key the places of those that a newer row may join."""

    def __init__(self) -> None:
        # By place, in order: removing a row from the middle is cheap.
        self._rows: dict[int, Pair] = {}
        self._places: dict[str, list[int]] = {}
        self._next = count()

    def pairs(self) -> list[Pair]:
        """Return all rows."""
        return list(self._rows.values())

    def add(self, board_key: str, row: Frame) -> None:
        """Add a row that is newer than all others."""
        if row.exempt:
            self._rows[next(self._next)] = board_key, row
        elif row.removed:
            self._add_removal(board_key, row)
        else:
            self._add_value(board_key, row)

    def _add_removal(self, board_key: str, row: Frame) -> None:
        older = self._removal(board_key)
        if older is not None:
            # One removal is enough; it stands for the messages of both.
            unreported = unreported_of(self._pop(board_key, older))
            row = row if unreported is None else unreported.on(row)
            values = self._places.get(board_key, [])
            if len(values) > 1:
                # No removal is between these values any more, so they may be put together.
                last = self._pop(board_key, values[-1])
                self._append(board_key, self._joined(board_key, last))
        self._append(board_key, row)

    def _add_value(self, board_key: str, row: Frame) -> None:
        removal = self._removal(board_key)
        if removal is not None:
            unreported = unreported_of(self._rows[removal][1])
            if unreported is not None and not unreported.fits(row):
                # The value cannot stand for the messages of the removal, so both are sent.
                self._append(board_key, row)
                return
            # A value supersedes the removal before it: the client still holds the key.
            self._pop(board_key, removal)
            row = row if unreported is None else unreported.on(row)
        self._append(board_key, self._joined(board_key, row))

    def _joined(self, board_key: str, row: Frame) -> Frame:
        """Put a value together with the newest one it may join, unless a merger declines."""
        for place in reversed(self._places.get(board_key, [])):
            older = self._rows[place][1]
            if older.removed or not _meet(older, row):
                continue
            if not (isinstance(older, CombinedRow) and isinstance(row, CombinedRow)):
                return _stand_for(self._pop(board_key, place), row)
            joined = older.then(row)
            if joined is None:
                return row
            self._pop(board_key, place)
            return joined
        return row

    def _removal(self, board_key: str) -> int | None:
        places = self._places.get(board_key, [])
        return next((place for place in places if self._rows[place][1].removed), None)

    def _append(self, board_key: str, row: Frame) -> None:
        place = next(self._next)
        self._rows[place] = board_key, row
        self._places.setdefault(board_key, []).append(place)

    def _pop(self, board_key: str, place: int) -> Frame:
        self._places[board_key].remove(place)
        return self._rows.pop(place)[1]


def _meet(older: Frame, newer: Frame) -> bool:
    """Return whether two values of a key may become one."""
    if isinstance(older, CombinedRow) and isinstance(newer, CombinedRow):
        return older.meets(newer)
    # A combined value and a plain one report their messages differently: neither replaces.
    return not isinstance(older, CombinedRow) and not isinstance(newer, CombinedRow)


def _stand_for(older: Frame, newer: Frame) -> Frame:
    """Return the newer row, which counts the messages of the older one, too."""
    total = receipt_of(older).then(receipt_of(newer))
    return newer if total == receipt_of(newer) else total.on(newer)
