"""The store: where topics and messages are kept, and the one place that numbers them.

One implementation keeps nothing beyond the process (`app.memory_store`); stores that survive
it implement the same protocol and pass the same tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from app.topic_document import TopicDocument
from conflation.frame import Gone


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as stored; `epoch` is new each time a topic of that name is made."""

    name: str
    document: TopicDocument
    epoch: str


@dataclass(frozen=True, slots=True)
class Producer:
    """A numbered producer's request: a number not above its highest publishes nothing."""

    name: str
    sequence: int


class Message(msgspec.Struct, frozen=True, gc=False):
    """A checked message: its text (JSON on one line), its SOW key ("" where there is none).

    `exempt`: its publisher wants it never conflated.
    """

    payload: bytes
    record_key: str = ""
    exempt: bool = False


class Removal(msgspec.Struct, frozen=True, gc=False):
    """A record leaves the state of the world; it has its place in the sequence as a message has."""

    record_key: str
    reason: Gone


Item = Message | Removal


@dataclass(frozen=True, slots=True)
class Appended:
    """Offsets that items were given, `first` to `last` without holes; 0 for a duplicate."""

    first: int
    last: int
    duplicate: bool = False


class Store(Protocol):
    """What the gateway asks of a store. Calls for one topic come one at a time."""

    survives_process: bool
    """Whether what it has acknowledged is there after `kill -9`."""

    async def records(self) -> Sequence[TopicRecord]:
        """Every topic there is, to begin with."""

    async def put_topic(self, record: TopicRecord) -> None:
        """Create a topic or replace its document."""

    async def delete_topic(self, name: str) -> None:
        """Forget a topic with its messages and its producers' numbers."""

    async def append(
        self, topic: str, items: Sequence[Item], timestamp_ms: int, producer: Producer | None
    ) -> Appended:
        """Number items and keep them, all or none, in one step with the producer's number.

        `timestamp_ms` is wall time at publication, the same for all of them.
        """

    async def aclose(self) -> None:
        """Let go of files and connections."""
