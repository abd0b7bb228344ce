"""The index from a field's value to the feeds whose filter asks for it (law 1)."""

from __future__ import annotations

from collections.abc import Callable

from conflation.frame import Frame
from conflation.topics.feed import Feed
from keys.filter import Equality, Filter, index_tokens
from keys.path import FieldPath

Tokens = Callable[[bytes], tuple[str, ...]]


class FeedIndex:
    """Feeds that can only match where a field equals a constant are found, not tried.

    A record that leaves such a filter is found by the value that it had before.
    """

    def __init__(self) -> None:
        self._everything: dict[Feed, None] = {}
        self._by_path: dict[FieldPath, tuple[Tokens, dict[str, dict[Feed, None]]]] = {}

    def add(self, feed: Feed) -> None:
        """A feed is made."""
        equality = _equality(feed.id.filter)
        if equality is None:
            self._everything[feed] = None
            return
        _, by_token = self._by_path.setdefault(equality.path, (index_tokens(equality.path), {}))
        for token in equality.tokens:
            by_token.setdefault(token, {})[feed] = None

    def discard(self, feed: Feed) -> None:
        """A feed is forgotten."""
        self._everything.pop(feed, None)
        equality = _equality(feed.id.filter)
        if equality is None:
            return
        _, by_token = self._by_path[equality.path]
        for token in equality.tokens:
            del by_token[token][feed]
            if not by_token[token]:
                del by_token[token]
        if not by_token:
            del self._by_path[equality.path]

    @property
    def for_everything(self) -> list[Feed]:
        """Feeds that every message may concern."""
        return list(self._everything)

    @property
    def is_needed(self) -> bool:
        """Whether any feed is to be looked up."""
        return bool(self._by_path)

    def concerned(self, frame: Frame, before: Frame | None) -> dict[Feed, None]:
        """Feeds that a message may concern, by its own values and those of its last version."""
        found: dict[Feed, None] = {}
        for tokens_of, by_token in self._by_path.values():
            tokens = () if frame.removed else tokens_of(frame.payload)
            if before is not None:
                tokens = (*tokens, *tokens_of(before.payload))
            for token in tokens:
                found.update(by_token.get(token, {}))
        return found


def _equality(wanted: Filter | None) -> Equality | None:
    return None if wanted is None else wanted.equality()
