"""The board: the newest frame of each key, in the order of last change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

import msgspec

from tidegate.conflation.frame import Frame, Span, Tombstone

SPANS_MAX = 8  # of a key that comes and goes: above that the oldest two become one

THE_RECORD = "[]"
"""Board key where the topic itself is the key."""

Pair = tuple[str, Frame]
"""A board key and its row."""


class Board:
    """Answers one question, `rows`: what has changed since a position, oldest first?

    A dict in which a changed key is taken out and put in again at the end. An answer walks back
    from the newest end, so it costs what changed and nothing else. A key that leaves stays as a
    tombstone with the spans of offsets in which it was there: a consumer at position P holds the
    key exactly if a span contains P.
    """

    def __init__(self) -> None:
        self.head = 0
        self.horizon = 0
        # Every key once, a tombstone where it has left: one dict, so that removals and values have
        # one order, and an answer is one walk.
        self._frames: dict[str, Frame] = {}
        # Since when a key has been there without a break: what a tombstone's last span begins with.
        self._entered: dict[str, int] = {}
        # Kept while a key is back, too: it may leave again, to consumers who missed both.
        self._departed: dict[str, tuple[Span, ...]] = {}
        # Replaced on the board, and sent all the same; in the order in which they were replaced.
        self._exempt: list[Frame] = []
        self.exempt_through = 0

    def take_over(self, other: Board) -> None:
        """Copy the state of another board."""
        self.head, self.horizon = other.head, other.horizon
        self._frames, self._entered = dict(other._frames), dict(other._entered)
        self._departed, self._exempt = dict(other._departed), list(other._exempt)
        self.exempt_through = other.exempt_through

    def __len__(self) -> int:
        """Count the keys that are there now, without tombstones."""
        return len(self._entered)

    @property
    def tombstones(self) -> int:
        """The number of keys that have left and are not forgotten."""
        return len(self._frames) - len(self._entered)

    @property
    def exempts(self) -> int:
        """The number of replaced messages that are kept, as they must not be conflated."""
        return len(self._exempt)

    def put(self, board_key: str, frame: Frame) -> Frame | None:
        """Let a frame take its key's place, and return the live frame that it replaces.

        Offsets never fall: a board is fed in publication order. One message may change several
        keys of a derived board, at the same offset.
        """
        assert frame.offset >= self.head, "a board is fed in publication order"
        # Taken out and put in again: a dict keeps the place of a key that is only assigned.
        replaced = self._frames.pop(board_key, None)
        self._frames[board_key] = frame
        self.head = frame.offset
        if board_key not in self._entered:
            self._entered[board_key] = frame.offset
            return None
        if replaced is not None and replaced.exempt:
            self._exempt.append(replaced)
        return replaced

    def put_all(self, frames: Sequence[Frame]) -> None:
        """Put live frames, each under its own key, as `put` does one by one."""
        assert frames[0].offset >= self.head, "a board is fed in publication order"
        newest, entered = self._frames, self._entered
        take, keep = newest.pop, self._exempt.append
        # `put` without its call, which would cost as much as all that it does.
        for frame in frames:
            board_key = frame.key
            replaced = take(board_key, None)
            newest[board_key] = frame
            if board_key not in entered:
                entered[board_key] = frame.offset
            elif replaced is not None and replaced.exempt:
                keep(replaced)
        self.head = frames[-1].offset

    def remove(self, board_key: str, removal: Tombstone) -> Tombstone | None:
        """Put a tombstone where the key was; None if it was not there."""
        assert removal.offset >= self.head, "a board is fed in publication order"
        entered = self._entered.pop(board_key, None)
        if entered is None:
            return None  # a second removal is no news, and would hide the value of the first
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
        self._frames[board_key] = tombstone
        self.head = removal.offset
        return tombstone

    def rows(self, since: int, until: int | None = None, *, oof: bool = False) -> list[Pair]:
        """Return what brings a consumer from `since` to `until`, by key, oldest first.

        With `oof` (rows that tell of removals), removals up to `until` are rows. Otherwise a
        removed key shows the last value it had. Replaced exempt messages are rows too. A position
        before `horizon` cannot be answered: tombstones may be missing.
        """
        assert since >= self.horizon, "this position is before the tombstones' horizon"
        # Nearly every board: no key has left, no message is exempt, and all is asked for.
        if until is None and not self._exempt and not self.tombstones:
            return self._values_since(since)
        last = self.head if until is None else until
        found = [(frame.key, frame) for frame in self._exempt if since < frame.offset <= last]
        shown = {board_key for board_key, _ in found}
        found.reverse()
        for board_key, frame in reversed(self._frames.items()):
            if frame.offset <= since:
                break  # offsets fall on this walk, so all the rest is older: cost is what changed
            row: Frame | None = frame
            if isinstance(frame, Tombstone):
                row = _row_of_gone(frame, since, last, oof=oof, shown=board_key in shown)
            if row is not None and row.offset <= last:
                found.append((board_key, row))
        found.reverse()
        # Exempt messages stand apart, and a value that a removal took away has an older offset than
        # its tombstone. The sort is stable: the reversals decide the order of equal offsets alone.
        found.sort(key=lambda row: row[1].offset)
        return found

    def _values_since(self, since: int) -> list[Pair]:
        """Answer the common case, a flush of a plain interval, with as little work as can be."""
        found: list[Pair] = []
        for row in reversed(self._frames.items()):
            if row[1].offset <= since:
                break
            found.append(row)
        found.reverse()
        return found

    def live(self) -> list[Frame]:
        """Return the state of the board now, an exact cut: every live frame, oldest first."""
        return [frame for frame in self._frames.values() if not frame.removed]

    def frames(self) -> list[Frame]:
        """Return every newest frame, tombstones included, oldest first.

        A copy of references and nothing else: 5 ms of a million keys, a tenth of `live`.
        """
        return list(self._frames.values())

    def get(self, board_key: str) -> Frame | None:
        """Return the newest frame of a key; None where there is none or it has left."""
        frame = self._frames.get(board_key)
        return None if frame is None or frame.removed else frame

    def row(self, board_key: str, since: int, *, oof: bool = False) -> Frame | None:
        """Return the newest row of one key in what `rows` answers; None if it has none."""
        frame = self._frames.get(board_key)
        if frame is None or frame.offset <= since:
            return None
        if isinstance(frame, Tombstone):
            return _row_of_gone(frame, since, self.head, oof=oof, shown=False)
        return frame

    def held_at(self, board_key: str, position: int) -> bool:
        """Return True if a consumer at this position had the key.

        Merged spans may say so wrongly (rule board-2 in docs/semantics/boards.md).
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

        A board that is stored as its newest frames alone has lost these.
        """
        # They stand in the order in which they were replaced, and an older one may be the last.
        return max((self.exempt_through, *(frame.offset for frame in self._exempt)))

    def restore(self, rows: Iterable[Pair], horizon: int, exempt_through: int) -> None:
        """Restore a board from its newest frames, oldest first.

        When the keys appeared is unknown: 0 is assumed, so every position held them.
        """
        assert not self._frames, "only a new board takes over what was kept"
        for board_key, frame in rows:
            if isinstance(frame, Tombstone):
                self._departed[board_key] = spans = ((0, frame.offset),)
                frame = msgspec.structs.replace(frame, spans=spans)
            else:
                self._entered[board_key] = 0
            self._frames[board_key] = frame
            self.head = frame.offset
        self.horizon, self.exempt_through = horizon, exempt_through

    def departed(self, since: int) -> list[Tombstone]:
        """Return the tombstones of keys that left after an offset, newest first."""
        newest = takewhile(lambda frame: frame.offset > since, reversed(self._frames.values()))
        return [frame for frame in newest if isinstance(frame, Tombstone)]

    def oldest(self) -> Frame | None:
        """Return the live frame that has not changed for the longest time."""
        return next((frame for frame in self._frames.values() if not frame.removed), None)

    def oldest_through(self, offset: int, frames_max: int) -> list[Frame]:
        """Return live frames up to an offset, oldest first, at most `frames_max`."""
        within = takewhile(lambda frame: frame.offset <= offset, self._frames.values())
        return list(islice((frame for frame in within if not frame.removed), frames_max))

    def trim(self, horizon: int) -> int:
        """Drop tombstones at or below an offset, and return how many they were."""
        # Tombstones stand among values, so this costs all keys; its callers see that it is rare.
        stale = [
            board_key
            for board_key, frame in self._frames.items()
            if frame.removed and frame.offset <= horizon
        ]
        for board_key in stale:
            del self._frames[board_key], self._departed[board_key]
        self.horizon = max(self.horizon, horizon)
        return len(stale)

    def trim_half(self, horizon: int) -> None:
        """Drop the older half of the tombstones, but none after `horizon`: those are needed."""
        # Half, so that the walk over all keys is paid for by as many removals as it drops.
        offsets = [frame.offset for frame in self._frames.values() if frame.removed]
        self.trim(min(horizon, offsets[len(offsets) // 2]))

    def trim_exempt(self, horizon: int) -> None:
        """Drop replaced exempt messages at or below an offset."""
        kept = [frame for frame in self._exempt if frame.offset > horizon]
        if len(kept) < len(self._exempt):
            self.exempt_through = max(self.exempt_through, horizon)
            self._exempt = kept


def _row_of_gone(
    gone: Tombstone, since: int, until: int, *, oof: bool, shown: bool
) -> Frame | None:
    """Return the row of a key that left: its removal, or the value that it took away.

    `shown`: the same answer has an exempt value of the key, which the removal takes back.
    """
    if oof and gone.offset <= until:
        return gone if shown or gone.held_at(since) else None
    return gone.as_put() if since < gone.put_offset <= until else None


def _merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Keep the list short: the two oldest spans become one that covers both.

    A consumer between them is then sent a removal of what it does not hold, which does no harm.
    """
    if len(spans) <= SPANS_MAX:
        return spans
    return ((spans[0][0], spans[1][1]), *spans[2:])
