"""The board: the newest frame of each key, in the order of last change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice, takewhile
from operator import attrgetter, ne
from typing import overload

import msgspec

from tidegate.conflation.frame import ROWS_AT_ONCE, Frame, Span, Tombstone

SPANS_MAX = 8  # of a key that comes and goes: above that the oldest two become one

THE_RECORD = "[]"
"""Board key where the topic itself is the key."""

Pair = tuple[str, Frame]
"""A board key and its row."""


_offset_of = attrgetter("offset")


class Pairs(Sequence[Pair]):
    """Board keys and their rows, as two lists in place of a tuple for each row.

    Making a million tuples takes a tenth of a second, and freeing them as long again.
    """

    __slots__ = ("frames", "keys")

    def __init__(self, keys: Sequence[str], frames: Sequence[Frame]) -> None:
        self.keys = keys
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    def without(self, sent: Mapping[str, int]) -> Pairs:
        """Return the rows without those that were sent; `sent` has the offset of each by key."""
        # In C and without tuples, which the garbage collector would visit.
        keeps = list(map(ne, map(_offset_of, self.frames), map(sent.get, self.keys)))
        return Pairs(list(compress(self.keys, keeps)), list(compress(self.frames, keeps)))

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.keys, self.frames, strict=True)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> Pairs: ...
    def __getitem__(self, at: int | slice) -> Pair | Pairs:
        if isinstance(at, slice):
            return Pairs(self.keys[at], self.frames[at])
        return self.keys[at], self.frames[at]


class Board:
    """Answers one question, `rows`: what has changed since a position, oldest first?

    It is a dict in which a changed key is moved to the end. An answer walks back from the end, so
    it takes time only for the keys that changed. A key that leaves stays as a tombstone with the
    spans of offsets in which it was there: a consumer at position P holds the key exactly if a span
    contains P.
    """

    def __init__(self) -> None:
        self.head = 0
        self.horizon = 0
        # Every key once, values and tombstones in one order, so that an answer is one walk.
        self._frames: dict[str, Frame] = {}
        # The offset since which a key is there, at which the last span of a tombstone will begin.
        self._entered: dict[str, int] = {}
        # The earlier spans of a key, also while it is there: it may leave again.
        self._departed: dict[str, tuple[Span, ...]] = {}
        # The tombstones of `_frames`, in their order: there may be few of them among millions.
        self._gone: dict[str, Tombstone] = {}
        # Exempt messages, which are sent although they were replaced; in order of replacement.
        self._exempt: list[Frame] = []
        self.exempt_through = 0

    def take_over(self, other: Board) -> None:
        """Copy the state of another board."""
        self.head, self.horizon = other.head, other.horizon
        self._frames, self._entered = dict(other._frames), dict(other._entered)
        self._departed, self._gone = dict(other._departed), dict(other._gone)
        self._exempt = list(other._exempt)
        self.exempt_through = other.exempt_through

    def __len__(self) -> int:
        """Count the keys that are there now, without tombstones."""
        return len(self._entered)

    @property
    def tombstones(self) -> int:
        """The number of keys that have left and are not trimmed."""
        return len(self._gone)

    @property
    def exempts(self) -> int:
        """The number of replaced messages that are kept, as they must not be conflated."""
        return len(self._exempt)

    def put(self, board_key: str, frame: Frame) -> Frame | None:
        """Put the newest frame of a key, and return the live frame that it replaces.

        Frames are put in publication order. One message may change several keys of a derived board,
        at the same offset.
        """
        assert frame.offset >= self.head, "frames are put in publication order"
        # Removed and inserted: a dict keeps the place of a key that is only assigned.
        replaced = self._frames.pop(board_key, None)
        self._frames[board_key] = frame
        self.head = frame.offset
        if board_key not in self._entered:
            self._entered[board_key] = frame.offset
            self._gone.pop(board_key, None)
            return None
        if replaced is not None and replaced.exempt:
            self._exempt.append(replaced)
        return replaced

    def put_all(self, frames: Sequence[Frame]) -> None:
        """Put live frames, each under its own key, as `put` does one by one."""
        assert frames[0].offset >= self.head, "frames are put in publication order"
        newest, entered, gone = self._frames, self._entered, self._gone
        take, keep = newest.pop, self._exempt.append
        # `put` inlined: a call takes as long as all that it does.
        for frame in frames:
            board_key = frame.key
            replaced = take(board_key, None)
            newest[board_key] = frame
            if board_key not in entered:
                entered[board_key] = frame.offset
                gone.pop(board_key, None)
            elif replaced is not None and replaced.exempt:
                keep(replaced)
        self.head = frames[-1].offset

    def remove(self, board_key: str, removal: Tombstone) -> Tombstone | None:
        """Put a tombstone where the key was; None if it was not there."""
        assert removal.offset >= self.head, "frames are put in publication order"
        entered = self._entered.pop(board_key, None)
        if entered is None:
            return None  # a second removal would hide the value that the first one removed
        spans = _merged((*self._departed.get(board_key, ()), (entered, removal.offset)))
        self._departed[board_key] = spans
        gone = self._frames.pop(board_key)
        if gone.exempt:
            self._exempt.append(gone)
        tombstone = Tombstone(
            removal.offset,
            gone.payload,
            gone.key,
            removal.timestamp_ms,
            reason=removal.reason,
            put_ms=gone.timestamp_ms,
            put_offset=0 if gone.exempt else gone.offset,
            spans=spans,
            record=removal.record,
        )
        self._frames[board_key] = self._gone[board_key] = tombstone
        self.head = removal.offset
        return tombstone

    def rows(self, since: int, until: int | None = None, *, oof: bool = False) -> Sequence[Pair]:
        """Return the rows that bring a consumer from `since` to `until`, by key, oldest first.

        With `oof`, removals up to `until` are rows. Otherwise the row of a removed key is the last
        value it had. Replaced exempt messages are rows, too. A position before `horizon` cannot be
        answered, as tombstones may be missing.
        """
        assert since >= self.horizon, "this position is before the tombstones' horizon"
        if self._has_only_values(since):
            values = self._values_since(since)
            if until is None or until >= self.head:
                return values
            return values[: bisect_right(values, until, key=lambda row: row[1].offset)]
        last = self.head if until is None else until
        found = [(frame.key, frame) for frame in self._exempt if since < frame.offset <= last]
        shown = {board_key for board_key, _ in found}
        found.reverse()
        for board_key, frame in reversed(self._frames.items()):
            if frame.offset <= since:
                break  # offsets decrease on this walk, so all others are older
            row: Frame | None = frame
            if isinstance(frame, Tombstone):
                row = _row_of_gone(frame, since, last, oof=oof, shown=board_key in shown)
            if row is not None and row.offset <= last:
                found.append((board_key, row))
        found.reverse()
        # Exempt messages are not in order, and the last value of a removed key is older than its
        # tombstone. The sort is stable, so the reversals only order equal offsets.
        found.sort(key=lambda row: row[1].offset)
        return found

    def _has_only_values(self, since: int) -> bool:
        """Return True if no key has left since, and no message is exempt: nearly always."""
        newest_gone = next(reversed(self._gone.values()), None)
        return not self._exempt and (newest_gone is None or newest_gone.offset <= since)

    def _values_since(self, since: int) -> Sequence[Pair]:
        """Answer the common case, a flush of a plain interval, as fast as possible."""
        if self.has_many(since):
            # In C: copying and searching all references is faster than a walk over many.
            frames = list(self._frames.values())
            start = bisect_right(frames, since, key=_offset_of)
            return Pairs(list(islice(self._frames, start, None)), frames[start:])
        found: list[Pair] = []
        for row in reversed(self._frames.items()):
            if row[1].offset <= since:
                break
            found.append(row)
        found.reverse()
        return found

    def part(self, since: int, rows_max: int, *, cut: int | None = None) -> Sequence[Pair]:
        """Return the oldest of the frames that a holder of `since` lacks.

        About `rows_max`; those of one offset stay together, so that the last offset is a position.
        Removals are tombstones. Keys that came and left meanwhile, and replaced exempt messages,
        are left out.

        Args:
            since: what the holder has; -1 for nothing at all.
            rows_max: about how long a part is; a shorter one is the last.
            cut: of a holder of earlier parts, where the first one began; of a snapshot, the head
                at its beginning. Keys that left later are sent, held or not.
        """
        if since >= 0 and cut is None:
            assert since >= self.horizon, "this position is before the tombstones' horizon"
        found: list[Pair] = []
        for board_key, frame in self._since(since):
            if len(found) >= rows_max and found[-1][1].offset != frame.offset:
                break
            if isinstance(frame, Tombstone):
                is_held = frame.held_at(since) if cut is None else frame.offset > cut
                if not is_held:
                    continue
            found.append((board_key, frame))
        return found

    def _since(self, since: int) -> Iterable[Pair]:
        """Return every newest frame after an offset, tombstones included, oldest first."""
        if since < 0:
            return self._frames.items()
        if self.has_many(since):
            # In C: copying and searching all references is faster than a walk over many.
            frames = list(self._frames.values())
            start = bisect_right(frames, since, key=_offset_of)
            return zip(islice(self._frames, start, None), frames[start:], strict=False)
        rows = list(takewhile(lambda row: row[1].offset > since, reversed(self._frames.items())))
        rows.reverse()
        return rows

    def has_many(self, since: int) -> bool:
        """Return True if more keys have changed since than are sent at once."""
        frame = next(islice(reversed(self._frames.values()), ROWS_AT_ONCE, None), None)
        return frame is not None and frame.offset > since

    def count_since(self, since: int) -> int | None:
        """Count the values that have changed since; None if the rows have to be made for it."""
        return len(self._values_since(since)) if self._has_only_values(since) else None

    def live(self) -> list[Frame]:
        """Return every live frame, oldest first."""
        return [frame for frame in self._frames.values() if not frame.removed]

    def frames(self) -> list[Frame]:
        """Return every newest frame, tombstones included, oldest first.

        Only references are copied: 5 ms for a million keys, a tenth of `live`.
        """
        return list(self._frames.values())

    def get(self, board_key: str) -> Frame | None:
        """Return the newest frame of a key; None where there is none or it has left."""
        frame = self._frames.get(board_key)
        return None if frame is None or frame.removed else frame

    def row(self, board_key: str, since: int, *, oof: bool = False) -> Frame | None:
        """Return the newest row of one key among those of `rows`; None if it has none."""
        frame = self._frames.get(board_key)
        if frame is None or frame.offset <= since:
            return None
        if isinstance(frame, Tombstone):
            return _row_of_gone(frame, since, self.head, oof=oof, shown=False)
        return frame

    def held_at(self, board_key: str, position: int) -> bool:
        """Return True if a consumer at this position had the key.

        It may wrongly return True after spans were merged (rule board-2).
        """
        entered = self._entered.get(board_key)
        if entered is not None and entered <= position:
            return True
        spans = self._departed.get(board_key, ())
        return any(begin <= position < end for begin, end in spans)

    def newest(self, since: int) -> list[Frame]:
        """Return the newest frame of each key changed after an offset, oldest first.

        A key that left has its tombstone.
        """
        found = list(takewhile(lambda frame: frame.offset > since, reversed(self._frames.values())))
        found.reverse()
        return found

    @property
    def exempt_last(self) -> int:
        """The offset of the newest exempt message that was replaced, kept or not; 0 for none.

        A board that is stored only as its newest frames has lost these.
        """
        # In order of replacement the last one need not be the newest.
        return max((self.exempt_through, *(frame.offset for frame in self._exempt)))

    def restore(self, rows: Iterable[Pair], horizon: int, exempt_through: int) -> None:
        """Restore a board from its newest frames, oldest first.

        The offsets at which keys appeared are unknown: with 0, every position holds them.
        """
        assert not self._frames, "only a new board is restored"
        for board_key, frame in rows:
            if isinstance(frame, Tombstone):
                self._departed[board_key] = spans = ((0, frame.offset),)
                frame = self._gone[board_key] = msgspec.structs.replace(frame, spans=spans)
            else:
                self._entered[board_key] = 0
            self._frames[board_key] = frame
            self.head = frame.offset
        self.horizon, self.exempt_through = horizon, exempt_through

    def forget_through(self, offset: int) -> None:
        """Forget the keys that have not changed after an offset, which no consumer needs.

        For a board without removals, whose keys are no records. The oldest are first, so only the
        forgotten ones are visited.
        """
        # In one walk: finding the first entry of a dict skips all removed ones before it.
        forgotten = takewhile(lambda row: row[1].offset <= offset, self._frames.items())
        for board_key, _ in list(forgotten):
            del self._frames[board_key], self._entered[board_key]

    def offset_of_newest(self, keys: int) -> int:
        """Return the offset after which at most so many keys have changed; 0 for all keys."""
        older = next(islice(reversed(self._frames.values()), keys, None), None)
        return 0 if older is None else older.offset

    def departed(self, since: int) -> list[Tombstone]:
        """Return the tombstones of keys that left after an offset, newest first."""
        return list(takewhile(lambda gone: gone.offset > since, reversed(self._gone.values())))

    def oldest(self) -> Frame | None:
        """Return the live frame that has not changed for the longest time."""
        return next((frame for frame in self._frames.values() if not frame.removed), None)

    def oldest_through(self, offset: int, frames_max: int) -> list[Frame]:
        """Return live frames up to an offset, oldest first, at most `frames_max`."""
        within = takewhile(lambda frame: frame.offset <= offset, self._frames.values())
        return list(islice((frame for frame in within if not frame.removed), frames_max))

    def trim(self, horizon: int) -> int:
        """Drop tombstones at or below an offset, and return how many they were."""
        gone = takewhile(lambda pair: pair[1].offset <= horizon, self._gone.items())
        stale = [board_key for board_key, _ in gone]
        for board_key in stale:
            del self._frames[board_key], self._departed[board_key], self._gone[board_key]
        self.horizon = max(self.horizon, horizon)
        return len(stale)

    def trim_half(self, horizon: int) -> None:
        """Drop the older half of the tombstones, but none after `horizon`."""
        middle = next(islice(self._gone.values(), len(self._gone) // 2, None))
        self.trim(min(horizon, middle.offset))

    def trim_exempt_half(self, horizon: int) -> None:
        """Drop the older half of the replaced exempt messages, but none after `horizon`."""
        middle = sorted(frame.offset for frame in self._exempt)[len(self._exempt) // 2]
        through = min(horizon, middle)
        kept = [frame for frame in self._exempt if frame.offset > through]
        if len(kept) < len(self._exempt):
            self.exempt_through = max(self.exempt_through, through)
            self._exempt = kept


def _row_of_gone(
    gone: Tombstone, since: int, until: int, *, oof: bool, shown: bool
) -> Frame | None:
    """Return the row of a key that left: its removal, or the last value it had.

    `shown`: the same answer has an exempt value of the key, which needs the removal.
    """
    if oof and gone.offset <= until:
        return gone if shown or gone.held_at(since) else None
    return gone.as_put() if since < gone.put_offset <= until else None


def _merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Merge the two oldest spans into one that covers both, if there are too many.

    A consumer between them is then sent a removal of a key it does not hold, which is harmless.
    """
    if len(spans) <= SPANS_MAX:
        return spans
    return ((spans[0][0], spans[1][1]), *spans[2:])
