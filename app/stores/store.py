"""The store: where topics and messages are kept, and the one place that numbers them.

`app.stores.memory` keeps nothing beyond the process; stores that survive it implement the same
protocol and pass the same tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from app.topic_document import TopicDocument
from conflation.frame import Frame, Gone
from conflation.kept import Kept as Kept  # noqa: PLC0414 - a word of this protocol


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as stored; `epoch` is new each time a topic of that name is made."""

    name: str
    document: TopicDocument
    epoch: str


@dataclass(frozen=True, slots=True)
class Producer:
    """A numbered producer's request: a number not above its highest publishes nothing.

    `run` counts the lives of a distributed writer: what an older one sends is refused.
    """

    name: str
    sequence: int
    run: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """A request that may come again: its `Idempotency-Key`, and a digest of all that it asks."""

    name: str
    digest: bytes


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """A checked message: its text (JSON on one line), its SOW key ("" where there is none).

    `exempt`: its publisher wants it never conflated.
    """

    payload: bytes
    record_key: str = ""
    exempt: bool = False


class Removal(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """A record leaves the state of the world; it has its place in the sequence as a message has.

    `payload` is the value that it takes away, where that is known.
    """

    record_key: str
    reason: Gone
    payload: bytes = b""


Item = Message | Removal


@dataclass(frozen=True, slots=True)
class Publication:
    """What is written into a topic in one step, all of it or nothing.

    `timestamp_ms` is wall time at publication, the same for all items. `stages` are forgotten
    with it, also with a duplicate: the items are theirs. `expected_head`: only if the topic's last
    offset is this one; whether the request is known is asked first.
    `fence`: the number of the lease under which it is written.
    """

    items: Sequence[Item]
    timestamp_ms: int
    producer: Producer | None = None
    retry: Retry | None = None
    stages: Sequence[str] = ()
    expected_head: int | None = None
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Offsets that items were given, `first` to `last` without holes.

    Of a duplicate they are those of the first time: 0 where that is not known, for a producer's.
    """

    first: int
    last: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What has changed on a topic's board since the last one: the board's own answer.

    With the journal after `through` it is the state of the world. Messages up to `journal_through`
    and tombstones up to `horizon` are no longer asked for; messages that were not to be conflated
    are missing from the changes where they were replaced, none behind `exempt_through`.
    """

    epoch: str
    changes: Sequence[Frame]
    through: int
    journal_through: int
    horizon: int
    exempt_through: int = 0


class HeadMoved(Exception):
    """Another gateway has written to the topic since; what was decided is to be decided anew."""


class Store(Protocol):
    """What the gateway asks of a store. Calls for one topic come one at a time.

    While it cannot be reached or cannot write, each call raises the problem `bus-unavailable`, and
    nothing of the call has an effect that is told to anybody.
    """

    survives_process: bool
    """Whether what it has acknowledged is there after `kill -9`."""

    checkpoints: bool
    """Whether it wants `checkpoint` now and then; else it keeps records by itself, or none."""

    async def open(self) -> None:
        """Reach it, and take over what is there.

        Raises:
            StoreUnusable: with one sentence for the operator; nothing was changed.
        """

    async def records(self) -> Sequence[TopicRecord]:
        """Every topic there is, to begin with."""

    async def kept(self, name: str) -> Kept:
        """What is kept of a topic."""

    async def put_topic(self, record: TopicRecord) -> None:
        """Create a topic or replace its document; a new epoch begins at offset 1."""

    async def delete_topic(self, name: str) -> None:
        """Forget a topic with its messages and its producers' numbers."""

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Number items and keep them, all or none, in one step with what is noted of their sender.

        Raises:
            HeadMoved: `expected_head` is not the topic's last offset.
            Problem: producer-fenced; idempotency-conflict; bus-unavailable.
        """

    async def renew(self, name: str, seen: int) -> str:
        """The epoch in which a topic goes on that was seen up to an offset in the one it has.

        Another one where it does not reach so far: then it has gone back, and keeps what it has.
        """

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Keep items aside for an hour; those of an earlier stage of that name are forgotten."""

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> list[Item] | None:
        """The items of stages, in the order of the names; None if one is not there (any more)."""

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Keep a topic's records, and forget what nobody will ask for."""

    async def fault(self) -> str | None:
        """Why nothing can be written just now, in a few words for the operator; None if it can.

        Where that is not known it is tried, by a write that changes nothing.
        """

    async def aclose(self) -> None:
        """Let go of files and connections; what was acknowledged is safe."""


class StoreUnusable(Exception):
    """A store that cannot be opened; its text is one sentence for the operator."""
