"""The store protocol: stores keep topics and messages, and alone assign offsets.

`tidegate.app.stores.memory` keeps nothing beyond the process; durable stores implement the same
protocol and pass the same tests.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

import msgspec

from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import Identity, TopicDefinition, Unusable
from tidegate.app.refusals import RETRY_LATER_S, Refused, Unavailable
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Item
from tidegate.conflation.frame import Frame, RestoredTopic
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json
from tidegate.keys.spec import record_key


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A stored topic; each creation of a topic of that name has a new `epoch`.

    `text`: of the definition, as it was read; another version may have written it.
    """

    name: str
    document: TopicDefinition
    epoch: str
    text: bytes = field(default=b"", compare=False, repr=False)

    @property
    def identity(self) -> Identity:
        """Return the part of the definition that is fixed while the topic holds messages."""
        return self.document.identity


Stored = TopicRecord | Unusable
"""A store's entry for a topic name."""


def new_epoch() -> str:
    """Return an epoch that no store has given to a topic."""
    # By chance: gateways that share a store must never give the same one twice, and a counter would
    # go back with the store.
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer number of a request; a sequence not above the highest publishes nothing.

    `run` counts the restarts of a distributed writer; requests of an older run are rejected.
    """

    name: str
    sequence: int
    run: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """A request's `Idempotency-Key` and a digest of its content."""

    name: str
    digest: bytes


class Fill(NamedTuple):
    """A write that takes a derived topic from one mark to the next.

    A mark says how far the topic is filled from its source, and no two writes have the same. The
    write is stored only where the topic is at `since`.
    """

    since: str
    mark: str


@dataclass(frozen=True, slots=True)
class Publication:
    """A write to a topic, applied completely or not at all.

    Args:
        timestamp_ms: wall time of the publication, equal for all items.
        stages: stages that the items came from, deleted with the write; each with a mark of what
            was read of it, or "" for whatever it holds. A duplicate leaves them.
        epoch: of the topic when the write was decided; in another one it is refused.
        expected_head: the last offset of the topic when the write was decided. It is refused if its
            records have changed since; duplicates are detected first.
        fence: the fencing number of the leader lease under which the write is made.
        fill: for a write that fills a derived topic.
    """

    items: Sequence[Item]
    timestamp_ms: int
    producer: Producer | None = None
    retry: Retry | None = None
    stages: Mapping[str, str] = field(default_factory=dict)
    expected_head: int | None = None
    fence: int | None = None
    epoch: str | None = None
    fill: Fill | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The assigned offsets, `first` to `last` without gaps; `last` is below for no items.

    For a duplicate they are those of the first request; 0 for a producer's, which are not stored.
    `highest` is then the producer's highest number. `unmatched` are the removals that found no
    record, as far as the writing gateway knew its records; a duplicate's are not known.
    """

    first: int
    last: int
    duplicate: bool = False
    highest: int | None = None
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The changes to a topic's records since the last checkpoint, as the board returns them.

    With the journal after `through` they give the state of the world. The store may delete messages
    up to `journal_through` and tombstones up to `horizon`. Messages exempt from conflation are
    missing from the changes where a newer one replaced them, none after `exempt_through`.
    """

    epoch: str
    changes: Sequence[Frame]
    through: int
    journal_through: int
    horizon: int
    exempt_through: int = 0


class Staged(NamedTuple):
    """What stages hold: their items, in the order in which they were asked for.

    `stages` is as `Publication` takes it.
    """

    items: list[Item]
    stages: Mapping[str, str]


class PastTime(NamedTuple):
    """A time that is asked for, and the present of the gateway that is asked."""

    time_ms: int
    now_ms: int


class HeadMoved(Exception):
    """Another gateway has written to the topic meanwhile; the caller must decide again.

    `head`: the topic's last offset then; 0 where it is not known.
    """

    def __init__(self, head: int = 0) -> None:
        super().__init__()
        self.head = head


class Store(Protocol):
    """The interface of a store; calls for one topic come one at a time.

    While the store is unreachable or cannot write, each call raises `Unavailable` and
    has no visible effect.
    """

    survives_process: bool
    """True if acknowledged data survives `kill -9`."""

    checkpoints: bool
    """True if the store needs `checkpoint` calls; otherwise it writes records itself, or none."""

    is_immediate: bool
    """True if `append` waits for nothing."""

    async def open(self) -> None:
        """Connect or open the files, and load what exists.

        Raises:
            StoreUnusable: with one sentence for the operator; nothing was changed.
        """

    async def records(self) -> Sequence[Stored]:
        """Return every topic at the start, also those with an unusable definition."""

    async def head(self, name: str) -> int:
        """Return the last offset of a topic, also of an unusable one."""

    async def load(self, name: str) -> RestoredTopic:
        """Load a topic; a shared store raises `TopicRedefined` if it is another one by now."""

    async def put_topic(self, record: TopicRecord, mark: str = "") -> None:
        """Create a topic or replace its document; a new epoch starts at offset 1.

        Args:
            record: the topic.
            mark: from which a topic that has just got its source is filled.
        """

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and its producers' numbers."""

    async def settle(self) -> None:
        """Wait until the definitions written so far are as safe as a persisted message."""

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Assign offsets and store all items or none, atomically with the state of their sender.

        Raises:
            HeadMoved: records of the write have changed since `expected_head`, the topic is in
                another epoch than `epoch`, or it is at another mark than `fill` begins at.
            Refused: producer-fenced; idempotency-conflict; bus-unavailable.
        """

    async def filled(self, topic: str) -> str:
        """Return the mark up to which a derived topic is filled; "" for one without."""

    async def confirm_epoch(self, name: str, seen: int) -> str:
        """Return the topic's valid epoch, for a caller that has seen offset `seen` in its own.

        A new epoch means that the topic has gone back before `seen`; it keeps the messages it has.
        """

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Store a stage for an hour, in place of an earlier one of that name."""

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> Staged | None:
        """Return what stages hold; None if a stage does not exist."""

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Store a topic's records, and delete what is no longer needed."""

    async def fault(self) -> str | None:
        """Return in a few words for the operator why writes fail, or None.

        If the state is unknown, the store tries a write without effect.
        """

    def figures(self) -> StoreFigures | None:
        """Return the current figures, from memory; None for a store that has metrics of its own."""

    async def aclose(self) -> None:
        """Close files and connections; acknowledged data is safe."""


class StoreUnusable(Exception):
    """The store cannot be opened; the text is one sentence for the operator."""


class StoreAway(StoreUnusable):
    """The server of the store does not answer now; a later start may open it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a definition in a shared store; `record` is None for a deletion."""

    version: int
    name: str
    record: Stored | None


class DefinitionsMoved(Exception):
    """Another gateway has changed a definition meanwhile; the caller must decide again."""


class DefinitionHeld(DefinitionsMoved):
    """A definition stays for a moment, as gateways still publish by the one before."""


class TopicRedefined(DefinitionsMoved):
    """Another gateway has changed one topic; `stored` is what it is now, None if it was deleted."""

    def __init__(self, stored: Stored | None) -> None:
        super().__init__()
        self.stored = stored


class TopicMoved(Unavailable):
    """The topic has restarted, or has another definition; the write had no effect.

    It is `Unavailable` by default; a caller that can decide again catches it.
    """

    def __init__(self) -> None:
        detail = "The topic's history is being checked; try again."
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Figures of a store; None for what does not apply.

    Args:
        commits: number of writes since the store was opened.
        queued: writes that wait for their commit.
        size_bytes: disk space in use.
    """

    commits: int
    queued: int = 0
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits per topic: stages, `Idempotency-Key`s of 24 hours, producers; and bytes of stages.

    The bytes are counted over all topics in memory and SQLite, and for each topic in Redis.
    """

    stages_max: int = 10_000
    staged_bytes_max: int = 1 << 30
    retry_keys_max: int = 1_000_000
    producers_max: int = 100_000

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits of the settings."""
        return cls(
            settings.stages_max,
            settings.staged_bytes_max,
            settings.retry_keys_max,
            settings.producers_max,
        )

    def check_stages(self, count: int, size_bytes: int) -> None:
        """Check the number and bytes of stages.

        Raises:
            Refused: limit-reached.
        """
        if count > self.stages_max or size_bytes > self.staged_bytes_max:
            raise no_room_for_stages()

    def check_retry_keys(self, count: int) -> None:
        """Check the number of `Idempotency-Key`s.

        Raises:
            Refused: limit-reached.
        """
        if count > self.retry_keys_max:
            raise no_room_for_retry_keys()

    def check_producers(self, count: int) -> None:
        """Check the number of producers.

        Raises:
            Refused: limit-reached.
        """
        if count > self.producers_max:
            raise no_room_for_producers()


def no_room_for_stages() -> Refused:
    """Return the refusal of a stage beyond the limits."""
    detail = "Stages have reached their limit in number or bytes; commit some."
    return Refused("limit-reached", detail, retry_after_s=RETRY_LATER_S)


def no_room_for_retry_keys() -> Refused:
    """Return the refusal of an `Idempotency-Key` beyond the limit."""
    detail = "The topic has reached its limit of Idempotency-Keys in 24 hours."
    return Refused("limit-reached", detail, retry_after_s=RETRY_LATER_S)


def no_room_for_producers() -> Refused:
    """Return the refusal of a producer beyond the limit."""
    detail = "The topic has reached its limit of numbered producers, whose names never expire."
    return Refused("limit-reached", detail, retry_after_s=RETRY_LATER_S)


def key_used_otherwise() -> Refused:
    """Return the refusal of an `Idempotency-Key` that another request has had."""
    detail = "The Idempotency-Key was used for another request."
    return Refused("idempotency-conflict", detail)


def run_superseded() -> Refused:
    """Return the refusal of an older run of a producer."""
    return Refused("producer-fenced", "A newer run of this producer has committed.")


def encode_definition(document: TopicDefinition) -> bytes:
    """Return the text that stores keep of a definition."""
    return msgspec.json.encode(document.document())


def parse_stored(name: str, text: bytes, epoch: str, mergers: Mergers) -> Stored:
    """Parse a stored topic; an invalid text gives an `Unusable`, never an exception.

    Every start reads definitions through this function. The text may come from anywhere: an older
    version, a damaged file, or another program that writes to Redis.
    """
    try:
        check_json(text)
        return TopicRecord(name, TopicDefinition.parse(text, mergers), epoch, text)
    except JsonInvalid as error:
        return Unusable(name, text, epoch, f"Its definition cannot be read: {error.detail}.")
    except Refused as refusal:
        field = "" if refusal.pointer is None else f" (field {refusal.pointer.lstrip('/')})"
        return Unusable(name, text, epoch, f"{refusal.detail.removesuffix('.')}{field}.")
    except Exception as error:  # a parser bug must not keep the other topics from starting
        return Unusable(
            name, text, epoch, f"Its definition cannot be read: {type(error).__name__}."
        )


def check_readable(document: TopicDefinition, mergers: Mergers, settings: Settings) -> None:
    """Check that a start can read this definition again and build a topic from it.

    Raises:
        Refused: topic-invalid.
    """
    # Through the text and back, as a start does it: what cannot be read is never stored.
    text = encode_definition(document)
    again = parse_stored("", text, "", mergers)
    if isinstance(again, Unusable):
        raise Refused("topic-invalid", f"The definition could not be read again: {again.reason}")
    if again.document != document or encode_definition(again.document) != text:
        raise Refused("topic-invalid", "The definition would be read back as a different one.")
    try:
        again.document.definition(settings.journal_messages_max, settings.journal_bytes_max)
        if again.document.key_spec:
            record_key(again.document.key_spec)
    except ValueError as error:
        detail = f"The definition gives no valid topic: {error}."
        raise Refused("topic-invalid", detail) from None
