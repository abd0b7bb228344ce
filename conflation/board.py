"""The board: the newest frame of each key, in the order of last change."""

from __future__ import annotations

from conflation.frame import Frame, Span

SPANS_MAX = 8


class Board:
    """Answers one question: what has changed since a position, oldest first?

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

    def __len__(self) -> int:
        """Keys that are there now, tombstones not counted."""
        return len(self._entered)

    def put(self, board_key: str, frame: Frame) -> Frame | None:
        """Let a frame take its key's place; returns the live frame that it replaces.

        Offsets only rise: a board is fed in publication order.
        """
        assert frame.offset > self.head, "a board is fed in publication order"
        replaced = self._frames.pop(board_key, None)
        self._frames[board_key] = frame
        self.head = frame.offset
        if board_key not in self._entered:
            self._entered[board_key] = frame.offset
            return None
        return replaced

    def remove(self, board_key: str, offset: int) -> Frame | None:
        """Put a tombstone where the key was; None if it was not there."""
        assert offset > self.head, "a board is fed in publication order"
        entered = self._entered.pop(board_key, None)
        if entered is None:
            return None
        spans = _merged((*self._left.get(board_key, ()), (entered, offset)))
        self._left[board_key] = spans
        gone = self._frames.pop(board_key)
        self._frames[board_key] = Frame(
            offset, gone.payload, gone.key, gone.timestamp_ms, removed=True, spans=spans
        )
        self.head = offset
        return gone

    def changes(self, since: int, until: int | None = None) -> list[Frame]:
        """Frames with `since < offset <= until`, oldest first, tombstones among them.

        A position behind `horizon` cannot be answered: tombstones may be missing.
        """
        assert since >= self.horizon, "this position is behind the tombstones' horizon"
        found: list[Frame] = []
        for frame in reversed(self._frames.values()):
            if frame.offset <= since:
                break
            if until is None or frame.offset <= until:
                found.append(frame)
        found.reverse()
        return found

    def live(self) -> list[Frame]:
        """The state of the board now, an exact cut: every live frame, oldest first."""
        return [frame for frame in self._frames.values() if not frame.removed]

    def get(self, board_key: str) -> Frame | None:
        """The newest frame of a key; None where there is none or it has left."""
        frame = self._frames.get(board_key)
        return None if frame is None or frame.removed else frame

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


def held_at(tombstone: Frame, position: int) -> bool:
    """Whether a consumer at this position still shows the key that left."""
    return any(entered <= position < left for entered, left in tombstone.spans)


def _merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Keep the list short: the two oldest spans become one that covers both."""
    if len(spans) <= SPANS_MAX:
        return spans
    return ((spans[0][0], spans[1][1]), *spans[2:])
