"""A precondition: `If-Match` and `If-None-Match` of a change to a topic."""

from __future__ import annotations

from dataclasses import dataclass

from app.entry import Entry
from app.problems import Problem


@dataclass(frozen=True, slots=True)
class Precondition:
    """`If-Match` and `If-None-Match: *` of a change."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, entry: Entry | None) -> None:
        """Whether the change may go on.

        Raises:
            Problem: precondition-failed.
        """
        if self.if_match is not None:
            wanted = {tag.strip() for tag in self.if_match.split(",")}
            if entry is None or not wanted & {"*", entry.etag}:
                raise Problem("precondition-failed", "The topic is not what If-Match names.")
        if self.if_none_match is not None and entry is not None:
            wanted = {tag.strip().removeprefix("W/") for tag in self.if_none_match.split(",")}
            if wanted & {"*", entry.etag}:
                raise Problem("precondition-failed", "The topic is there already.")
