"""The index from a field's value to the feeds whose filter requires it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.frame import Frame
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.filter import Equality, Filter, index_tokens
from tidegate.keys.path import FieldPath

Tokens = Callable[[bytes], tuple[str, ...]]


class FeedIndex:
    """Finds feeds whose filter requires that a field equals a constant, without trying them.

    A message costs one lookup for each field that such filters have, and the feeds that are found,
    however many other feeds there are.
    """

    def __init__(self) -> None:
        self._everything: dict[Feed, None] = {}
        self._by_path: dict[FieldPath, tuple[Tokens, dict[str, dict[Feed, None]]]] = {}

    @property
    def tried(self) -> Collection[Feed]:
        """The feeds that try every message."""
        return self._everything.keys()

    def add(self, feed: Feed, wanted: Filter | None) -> None:
        """Add a new feed with its filter."""
        equality = _equality(wanted)
        if equality is None:
            self._everything[feed] = None
            return
        _, by_token = self._by_path.setdefault(equality.path, (index_tokens(equality.path), {}))
        for token in equality.tokens:
            by_token.setdefault(token, {})[feed] = None

    def discard(self, feed: Feed, wanted: Filter | None) -> None:
        """Forget a feed that was added with this filter."""
        self._everything.pop(feed, None)
        equality = _equality(wanted)
        if equality is None:
            return
        _, by_token = self._by_path[equality.path]
        for token in equality.tokens:
            del by_token[token][feed]
            if not by_token[token]:
                del by_token[token]
        # Otherwise each message would be read for a path that no filter has any more.
        if not by_token:
            del self._by_path[equality.path]

    def routed(self, frames: Sequence[Frame], records: Board | None) -> dict[Feed, Sequence[Frame]]:
        """Return frames by the feeds that they may concern; `records`: the board before them."""
        routed: dict[Feed, Sequence[Frame]] = {}
        if self._by_path:  # few topics have such filters; others need not read messages
            routed.update(self._looked_up(frames, records))
        routed.update((feed, frames) for feed in self._everything)
        return routed

    def _looked_up(self, frames: Sequence[Frame], records: Board | None) -> dict[Feed, list[Frame]]:
        """Return frames by the feeds whose filter's value they have, or had."""
        found: dict[Feed, list[Frame]] = {}
        # A message of the same call may be what the next one replaces.
        newest: dict[str, Frame] = {}
        for frame in frames:
            before = newest.get(frame.key)
            if before is None and records is not None:
                before = records.get(frame.key or THE_RECORD)
            for feed in self._concerned(frame, before):
                found.setdefault(feed, []).append(frame)
            if records is not None:
                newest[frame.key] = frame
        return found

    def _concerned(self, frame: Frame, before: Frame | None) -> dict[Feed, None]:
        """Return the feeds that a message may concern, by its values and those it replaces."""
        found: dict[Feed, None] = {}
        for tokens_of, by_token in self._by_path.values():
            tokens = () if frame.removed else tokens_of(frame.payload)
            # A record that leaves a filter is found by the value that it had.
            if before is not None:
                tokens = (*tokens, *tokens_of(before.payload))
            for token in tokens:
                found.update(by_token.get(token, {}))
        return found


def _equality(wanted: Filter | None) -> Equality | None:
    return None if wanted is None else wanted.equality()
