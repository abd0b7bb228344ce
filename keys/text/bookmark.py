"""Bookmarks: a place in an epoch of a topic, `<epoch>-<position>`, opaque to clients."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.keys.errors import BookmarkInvalid

START = "epoch"
"""The place before the first message, also of an empty topic."""

_BOOKMARK = re.compile(r"([A-Za-z0-9]{1,64})-(0|[1-9][0-9]{0,18})", re.ASCII)
_EPOCH = re.compile(r"(?:[A-Za-z0-9]{1,64}-?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place in a topic: the reader has seen everything up to `offset` in this epoch."""

    epoch: str
    offset: int

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Bookmark:
        """Parse the text of an SSE `id:` or of a query.

        Raises:
            BookmarkInvalid: as `split_bookmark`.
        """
        return cls(*split_bookmark(text, position))

    def __str__(self) -> str:
        return join_bookmark(self.epoch, self.offset)


def split_bookmark(text: str, position: int = 0) -> tuple[str, int]:
    """Return epoch and place as a pair, which is cheaper than a `Bookmark` for each of many rows.

    Args:
        text: the bookmark and nothing else.
        position: the offset of this text in the text that was sent.

    Raises:
        BookmarkInvalid: malformed, at the first wrong character.
    """
    found = _BOOKMARK.fullmatch(text)
    if found is None:
        epoch = _EPOCH.match(text)
        raise BookmarkInvalid(
            "a bookmark is the id of an event, unchanged", position + (epoch.end() if epoch else 0)
        )
    return found[1], int(found[2])


def continued(former: str) -> dict[str, int]:
    """Return the epochs that a topic's epoch continues, each with the last offset that both have.

    `former`: the epochs before it as the bus has them, `4f2a:17 90bc:44`, each with what the next
    one has of it, -1 for nothing.
    """
    found: dict[str, int] = {}
    through: int | None = None
    for each in reversed(former.split()):
        epoch, _, last = each.partition(":")
        # What a later epoch lacks, this one lacks too.
        through = int(last) if through is None else min(through, int(last))
        found[epoch] = through
    return found


def join_bookmark(epoch: str, offset: int) -> str:
    """Return the text of a bookmark; 0 stands before the first message."""
    return f"{epoch}-{offset}"
