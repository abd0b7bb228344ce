"""What a topic is: its key, its queue policy, what its journal keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


class QueuePolicy(StrEnum):
    """What becomes of a slow session's queue of this topic (as Diffusion's policies)."""

    OFF = "off"
    CONFLATE = "conflate"
    ALWAYS = "always"
    UNSUBSCRIBE = "unsubscribe"


CONFLATING = (QueuePolicy.CONFLATE, QueuePolicy.ALWAYS)
"""Whose messages may be replaced by newer ones because somebody is slow."""


class Priority(StrEnum):
    """Which of a session's topics are served first when there is a backlog."""

    LOW = "low"
    DEFAULT = "default"
    HIGH = "high"


class Kind(StrEnum):
    """What a topic's messages are; a series is an event log and never conflated."""

    JSON = "json"
    TEXT = "text"
    BINARY = "binary"
    SERIES = "series"


@dataclass(frozen=True, slots=True)
class History:
    """What a journal keeps: newest `messages_max`, within `bytes_max` and `age_ms` if given."""

    messages_max: int
    bytes_max: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """A topic as the engine needs it.

    An empty `key_spec` means that it keeps no records, unless `retains`: then the newest
    message is the one record. `merge`, `match` and `replaces` (`placement=replace`) are its
    subscriptions' defaults. `expiration_ns` removes a record that was not published again.
    `tidies`: what is queued for a subscription goes with it (`tidy_on_unsubscribe`).
    """

    history: History
    key_spec: KeySpec = field(default_factory=KeySpec)
    policy: QueuePolicy = QueuePolicy.CONFLATE
    kind: Kind = Kind.JSON
    retains: bool = False
    values_only: bool = False
    merge: Reduce | Merger | None = None
    match: KeySpec | Matcher | None = None
    replaces: bool = False
    expiration_ns: int | None = None
    priority: Priority = Priority.DEFAULT
    tidies: bool = False

    @property
    def has_fields(self) -> bool:
        """True if messages are JSON, which filters, keys and reducers look into."""
        return self.kind in (Kind.JSON, Kind.SERIES)

    @property
    def keeps_records(self) -> bool:
        """True if the topic has a state of the world."""
        return bool(self.key_spec) or self.retains
