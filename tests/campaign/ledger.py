"""The ledger: every request, before it is sent, with all that was answered; kept outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from tests.campaign.lineage import Position

Row = Mapping[str, Any]
"""A message: `k` is its key; `w`, `n` and `i` say which message of which request it is."""


class Ident(NamedTuple):
    """Which message of which request of which writer."""

    writer: str
    number: int
    place: int

    @classmethod
    def of(cls, row: Row) -> Ident:
        """Read it from a message."""
        return cls(row["w"], row["n"], row["i"])

    def __str__(self) -> str:
        return f"{self.writer} {self.number}.{self.place}"


class Verb(StrEnum):
    """What a request does."""

    PUBLISH = "publish"
    MERGE = "merge"
    REMOVE = "remove"
    REMOVE_MATCHING = "remove matching"
    REMOVE_IN_ORDER = "remove in order"
    """By an envelope, which has a position."""


@dataclass(slots=True, eq=False)
class Request:
    """A request to one topic.

    Attributes:
        rows: messages, or merge patches.
        keys: of the records that it writes or removes.
        sent_at_s: when it was sent first.
        answered_at_s: when it was acknowledged; 0 while nobody knows what became of it.
        attempts: how many times it may have reached a gateway.
    """

    topic: str
    writer: str
    number: int
    verb: Verb
    rows: Sequence[Row]
    keys: Sequence[str]
    sent_at_s: float
    answered_at_s: float = 0.0
    first: Position | None = None
    last: Position | None = None
    is_duplicate: bool = False
    deleted: int = 0
    attempts: int = 0
    gateways: list[int] = field(default_factory=list)

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was answered with 200."""
        return self.answered_at_s > 0

    @property
    def writes(self) -> bool:
        """Whether it has messages."""
        return self.verb in {Verb.PUBLISH, Verb.MERGE}

    def idents(self) -> Iterator[Ident]:
        """Its messages, in order."""
        return (Ident.of(row) for row in self.rows)

    def acknowledge(self, at_s: float, answer: Mapping[str, Any]) -> None:
        """Note what was answered."""
        self.answered_at_s = at_s
        self.first = Position.of(answer["first"]) if answer.get("first") else None
        self.last = Position.of(answer["last"]) if answer.get("last") else None
        self.is_duplicate = bool(answer.get("duplicate"))
        self.deleted = int(answer.get("deleted", 0))

    def __str__(self) -> str:
        at = f" at {self.first}" if self.first else ""
        ways = "".join(map(str, self.gateways))
        span = f"{self.sent_at_s:.2f}..{self.answered_at_s:.2f} s"
        return f"{self.writer} {self.number} ({self.verb}, gateways {ways}, {span}{at})"


@dataclass(slots=True, eq=False)
class Definition:
    """A request about a topic itself: `text` is the description that it gives, None if it deletes.

    `tag`: the ETag that it was conditional on.
    """

    topic: str
    writer: str
    text: str | None
    sent_at_s: float
    tag: str = ""
    answered_at_s: float = 0.0
    status: int = 0

    @property
    def is_done(self) -> bool:
        """Whether it was answered that it has had its effect."""
        return self.status in {200, 201, 204}

    @property
    def is_refused(self) -> bool:
        """Whether it was answered that it has had no effect."""
        return self.status in {404, 412}


@dataclass(slots=True, eq=False)
class Ledger:
    """All requests, in the order of asking."""

    requests: list[Request] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Answers that no request here can rightly get."""

    def of(self, topic: str) -> list[Request]:
        """Return the requests to a topic."""
        return [request for request in self.requests if request.topic == topic]

    def sums(self) -> dict[str, int]:
        """Return how many requests and messages there were."""
        done = [request for request in self.requests if request.is_acknowledged]
        return {
            "requests": len(self.requests),
            "messages acknowledged": sum(len(each.rows) for each in done),
            "removals acknowledged": sum(not each.writes for each in done),
            "acknowledged as duplicates": sum(each.is_duplicate for each in done),
            "requests without an answer": len(self.requests) - len(done),
            "definitions acknowledged": sum(each.is_done for each in self.definitions),
        }
