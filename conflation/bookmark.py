"""Bookmarks: a place in one life of a topic, `<epoch>-<position>`, opaque to clients."""

from __future__ import annotations

import re
from dataclasses import dataclass

from conflation.errors import BookmarkInvalid

_BOOKMARK = re.compile(r"([A-Za-z0-9]{1,64})-(0|[1-9][0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to `offset` in this epoch has been seen."""

    epoch: str
    offset: int

    @classmethod
    def parse(cls, text: str) -> Bookmark:
        """From the text of an SSE `id:` or a query.

        Raises:
            BookmarkInvalid: not one of ours.
        """
        found = _BOOKMARK.fullmatch(text)
        if found is None:
            raise BookmarkInvalid("a bookmark is the id of an event, unchanged")
        return cls(found[1], int(found[2]))

    def __str__(self) -> str:
        return f"{self.epoch}-{self.offset}"
