"""Definitions of topics: key, type, queue policy, and how much the journal keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


class QueuePolicy(StrEnum):
    """What a full queue does with this topic's messages (Diffusion's conflation policies)."""

    OFF = "off"
    CONFLATE = "conflate"
    ALWAYS = "always"
    UNSUBSCRIBE = "unsubscribe"


CONFLATING = (QueuePolicy.CONFLATE, QueuePolicy.ALWAYS)
"""Policies by which newer messages may replace those queued for a slow session."""


class Priority(StrEnum):
    """Which of a session's topics is sent first when it has a backlog."""

    LOW = "low"
    DEFAULT = "default"
    HIGH = "high"


class Kind(StrEnum):
    """The type of a topic's messages; a series is an event log and never conflated."""

    JSON = "json"
    TEXT = "text"
    BINARY = "binary"
    SERIES = "series"


@dataclass(frozen=True, slots=True)
class History:
    """How much a journal keeps: `messages_max`, within `bytes_max` and `age_ms` if given."""

    messages_max: int
    bytes_max: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """A topic as the engine needs it.

    With an empty `key_spec` it keeps no records, unless `retains`: then the newest message is the
    one record. `merge`, `match` and `replaces` (`placement=replace`) are the defaults of its
    subscriptions. A record that is not published again for `expiration_ns` is removed. `tidies`:
    what is queued for a subscription is dropped with it (`tidy_on_unsubscribe`).
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
