"""The ledger: what was asked, what was acknowledged, at which level and when, kept outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """What an acknowledgement promises (CONTRACT 3)."""

    PROCESSED = "processed"
    PERSISTED = "persisted"


class Sender(StrEnum):
    """How a writer says which request is which, so that it may send it again."""

    NUMBERED = "numbered"
    KEYED = "keyed"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Ident:
    """Which message of which request of which writer."""

    writer: str
    sequence: int
    index: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What was acknowledged: bookmarks, or how many records left; None where it was not said."""

    at_s: float
    first: str | None = None
    last: str | None = None
    duplicate: bool = False
    deleted: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """One request of a writer: messages, by their keys, or the removal of one record.

    `sent_at_s` is when it was sent first. Without an answer nobody knows what became of it.
    """

    writer: str
    sequence: int
    level: Level
    keys: tuple[str, ...]
    removes: bool
    sent_at_s: float
    answer: Answer | None = None
    attempts: int = 0

    @property
    def is_promised(self) -> bool:
        """Whether it must be there."""
        return self.answer is not None and self.level is Level.PERSISTED

    def is_owed(self, since_s: float, epoch: str = "") -> bool:
        """Whether it was promised, and that no earlier than the last announced loss.

        What was under way at that moment may have been answered just before it, in the epoch that
        ended: its answer only came later. `epoch` is the one that began. An answer that has no
        bookmark, such as that of a removal, does not say in which of the two it was given.
        """
        if not self.is_promised or self.answer is None:
            return False
        first = self.answer.first
        has_ended = first is None or (bool(epoch) and not first.startswith(f"{epoch}-"))
        return self.answer.at_s >= since_s and not (has_ended and self.sent_at_s < since_s)

    def idents(self) -> Iterator[Ident]:
        """Its messages, in order."""
        return (Ident(self.writer, self.sequence, index) for index in range(len(self.keys)))


@dataclass(slots=True, eq=False)
class Ledger:
    """What one topic was asked for, in the order of asking; one entry a request."""

    requests: list[Request] = field(default_factory=list)

    def note(self, request: Request) -> None:
        """Before it is sent."""
        self.requests.append(request)

    def last_epoch(self) -> str:
        """The epoch of the bookmark that was acknowledged last; empty before the first."""
        for request in reversed(self.requests):
            if request.answer is not None and request.answer.first:
                return request.answer.first.rpartition("-")[0]
        return ""

    def sums(self) -> dict[str, int]:
        """How many requests and messages there were, and of what kind."""
        acknowledged = [each for each in self.requests if each.answer is not None]
        promised = [each for each in acknowledged if each.is_promised]
        return {
            "requests": len(self.requests),
            "requests acknowledged": len(acknowledged),
            "messages acknowledged as persisted": sum(
                len(each.keys) for each in promised if not each.removes
            ),
            "removals acknowledged": sum(each.removes for each in promised),
            "acknowledged as duplicates": sum(
                each.answer is not None and each.answer.duplicate for each in acknowledged
            ),
            "requests without an answer": len(self.requests) - len(acknowledged),
        }
