"""The board: the newest frame of each key, in the order of last change."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile

import msgspec

from tidegate.conflation.frame import Frame, Span, Tombstone

SPANS_MAX = 8

THE_RECORD = "[]"
"""Board key where the topic itself is the key."""

Pair = tuple[str, Frame]
"""A board key, and a row of it."""


class Board:
    """Answers one question, `rows`: what has changed since a position, oldest first?

    A dict in which a changed key is taken out and put in again at the end; an answer walks
    back from the newest end, so it costs what changed and nothing else. A key that leaves
    stays as a tombstone that carries its focus spans: a consumer at position P holds the
    key exactly if a span contains P.
    """

    def __init__(self) -> None:
        self.head = 0
        self.horizon = 0
        self._frames: dict[str, Frame] = {}
        self._entered: dict[str, int] = {}
        self._left: dict[str, tuple[Span, ...]] = {}
        self._exempt: list[Frame] = []
        self.exempt_through = 0

    def take_over(self, other: Board) -> None:
        """Stand as another board stands now."""
        self.head, self.horizon = other.head, other.horizon
        self._frames, self._entered = dict(other._frames), dict(other._entered)
        self._left, self._exempt = dict(other._left), list(other._exempt)
        self.exempt_through = other.exempt_through

    def __len__(self) -> int:
        """Keys that are there now, tombstones not counted."""
        return len(self._entered)

    @property
    def tombstones(self) -> int:
        """Keys that have left and are not forgotten."""
        return len(self._frames) - len(self._entered)

    @property
    def exempts(self) -> int:
        """Replaced messages that are kept because they were never to be conflated."""
        return len(self._exempt)

    def put(self, board_key: str, frame: Frame) -> Frame | None:
        """Let a frame take its key's place; returns the live frame that it replaces.

        Offsets never fall: a board is fed in publication order. (Several keys of a derived
        board may change with one message.)
        """
        assert frame.offset >= self.head, "a board is fed in publication order"
        replaced = self._frames.pop(board_key, None)
        self._frames[board_key] = frame
        self.head = frame.offset
        if board_key not in self._entered:
            self._entered[board_key] = frame.offset
            return None
        if replaced is not None and replaced.exempt:
            self._exempt.append(replaced)
        return replaced

    def remove(self, board_key: str, removal: Tombstone) -> Tombstone | None:
        """Put a tombstone where the key was; None if it was not there."""
        assert removal.offset >= self.head, "a board is fed in publication order"
        entered = self._entered.pop(board_key, None)
        if entered is None:
            return None
        spans = _merged((*self._left.get(board_key, ()), (entered, removal.offset)))
        self._left[board_key] = spans
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
        """What a consumer at `since` is sent to be at `until`, by key, oldest first.

        Removals only if `oof` asks for them. One that happened after `until`, or is not to be
        told, leaves the value that it took away: that was published too. So was what a newer
        message replaced although it was never to be conflated. A position behind `horizon`
        cannot be answered: tombstones may be missing.
        """
        assert since >= self.horizon, "this position is behind the tombstones' horizon"
        if until is None and not self._exempt and not self.tombstones:
            return self._values_since(since)
        last = self.head if until is None else until
        found = [(frame.key, frame) for frame in self._exempt if since < frame.offset <= last]
        shown = {board_key for board_key, _ in found}
        found.reverse()
        for board_key, frame in reversed(self._frames.items()):
            if frame.offset <= since:
                break
            row: Frame | None = frame
            if isinstance(frame, Tombstone):
                row = _told(frame, since, last, oof=oof, shown=board_key in shown)
            if row is not None and row.offset <= last:
                found.append((board_key, row))
        found.reverse()
        found.sort(key=lambda row: row[1].offset)
        return found

    def _values_since(self, since: int) -> list[Pair]:
        """The common case, with as little work as can be."""
        found: list[Pair] = []
        for row in reversed(self._frames.items()):
            if row[1].offset <= since:
                break
            found.append(row)
        found.reverse()
        return found

    def live(self) -> list[Frame]:
        """The state of the board now, an exact cut: every live frame, oldest first."""
        return [frame for frame in self._frames.values() if not frame.removed]

    def get(self, board_key: str) -> Frame | None:
        """The newest frame of a key; None where there is none or it has left."""
        frame = self._frames.get(board_key)
        return None if frame is None or frame.removed else frame

    def told(self, board_key: str, since: int, *, oof: bool = False) -> Frame | None:
        """Of one key what `rows` answers, the newest row; None if nothing."""
        frame = self._frames.get(board_key)
        if frame is None or frame.offset <= since:
            return None
        if isinstance(frame, Tombstone):
            return _told(frame, since, self.head, oof=oof, shown=False)
        return frame

    def held_at(self, board_key: str, position: int) -> bool:
        """Whether a consumer at this position had the key; as rule board-2 says it of old spans."""
        entered = self._entered.get(board_key)
        if entered is not None and entered <= position:
            return True
        spans = self._left.get(board_key, ())
        return any(begin <= position < end for begin, end in spans)

    def newest(self, since: int) -> list[Frame]:
        """The newest frame of each key changed after an offset, oldest first.

        Of a key that left that is its tombstone, whoever held it.
        """
        found = list(takewhile(lambda frame: frame.offset > since, reversed(self._frames.values())))
        found.reverse()
        return found

    @property
    def exempt_last(self) -> int:
        """The newest replaced message that was not to be conflated, kept or not; 0: there is none.

        What is kept of a board by its newest frames alone says nothing of these.
        """
        return max((self.exempt_through, *(frame.offset for frame in self._exempt[-1:])))

    def restore(self, rows: Iterable[Pair], horizon: int, exempt_through: int) -> None:
        """Stand as the newest frames of a board say, oldest first.

        Since when their keys had been there is not known any more: as if from the beginning.
        """
        assert not self._frames, "only a new board takes over what was kept"
        for board_key, frame in rows:
            if isinstance(frame, Tombstone):
                self._left[board_key] = spans = ((0, frame.offset),)
                frame = msgspec.structs.replace(frame, spans=spans)
            else:
                self._entered[board_key] = 0
            self._frames[board_key] = frame
            self.head = frame.offset
        self.horizon, self.exempt_through = horizon, exempt_through

    def left(self, since: int) -> list[Tombstone]:
        """Keys that are not there any more and left after an offset, whoever held them."""
        newest = takewhile(lambda frame: frame.offset > since, reversed(self._frames.values()))
        return [frame for frame in newest if isinstance(frame, Tombstone)]

    def oldest(self) -> Frame | None:
        """The live frame that has not changed for the longest time."""
        return next((frame for frame in self._frames.values() if not frame.removed), None)

    def oldest_through(self, offset: int, frames_max: int) -> list[Frame]:
        """Live frames up to an offset, oldest first, at most so many."""
        within = takewhile(lambda frame: frame.offset <= offset, self._frames.values())
        return list(islice((frame for frame in within if not frame.removed), frames_max))

    def trim(self, horizon: int) -> int:
        """Forget tombstones at or below an offset; returns how many."""
        stale = [
            board_key
            for board_key, frame in self._frames.items()
            if frame.removed and frame.offset <= horizon
        ]
        for board_key in stale:
            del self._frames[board_key], self._left[board_key]
        self.horizon = max(self.horizon, horizon)
        return len(stale)

    def trim_half(self, horizon: int) -> None:
        """Forget the older half of the tombstones, but none behind an offset that is needed."""
        offsets = [frame.offset for frame in self._frames.values() if frame.removed]
        self.trim(min(horizon, offsets[len(offsets) // 2]))

    def trim_exempt(self, horizon: int) -> None:
        """Forget replaced messages at or below an offset that were not to be conflated."""
        kept = [frame for frame in self._exempt if frame.offset > horizon]
        if len(kept) < len(self._exempt):
            self.exempt_through = max(self.exempt_through, horizon)
            self._exempt = kept


def _told(gone: Tombstone, since: int, until: int, *, oof: bool, shown: bool) -> Frame | None:
    """What is told of a key that left: the removal, or the value that it took away.

    `shown`: the same answer has a value of the key that is not to be conflated.
    """
    if oof and gone.offset <= until:
        return gone if shown or gone.held_at(since) else None
    return gone.as_put() if since < gone.put_offset <= until else None


def _merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Keep the list short: the two oldest spans become one that covers both."""
    if len(spans) <= SPANS_MAX:
        return spans
    return ((spans[0][0], spans[1][1]), *spans[2:])
