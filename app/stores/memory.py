"""The store of `--data :memory:`: assigns offsets and keeps nothing beyond the process.

The engine's journals hold the messages; this store has only the definitions, the last offsets and
the state of senders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.app.stores.items import Item
from tidegate.app.stores.store import (
    Appended,
    Bounds,
    Checkpoint,
    HeadMoved,
    Producer,
    Publication,
    Retry,
    Staged,
    StoreFigures,
    TopicRecord,
    key_used_otherwise,
    run_superseded,
)
from tidegate.conflation.frame import RestoredTopic

RETRY_MS = 24 * 3_600_000
"""The time for which the store recognizes a retry (CONTRACT 3)."""

STAGE_MS = 3_600_000
"""The time for which a stage waits for its commit (CONTRACT 3)."""


NORMAL = Bounds()


class MemoryStore:
    """Definitions, last offsets and sender state in dictionaries."""

    survives_process = False
    is_immediate = True
    checkpoints = False

    def __init__(self, limits: Bounds = NORMAL) -> None:
        self._limits = limits
        self._topics: dict[str, _Topic] = {}
        self._commits = 0

    def figures(self) -> StoreFigures:
        """Return the figures; every write commits by itself and none waits."""
        return StoreFigures(self._commits)

    async def open(self) -> None:
        """Do nothing: the store needs no connection."""

    async def records(self) -> Sequence[TopicRecord]:
        """Return every topic."""
        return [topic.record for topic in self._topics.values()]

    async def head(self, name: str) -> int:
        """Return the last offset of a topic."""
        return self._topics[name].last

    async def load(self, name: str) -> RestoredTopic:
        """Return an empty topic: nothing survives the process."""
        return RestoredTopic()

    async def put_topic(self, record: TopicRecord, mark: str = "") -> None:
        """Create a topic or replace its document; a new epoch starts at offset 1."""
        existing = self._topics.get(record.name)
        # Senders are of an epoch: a new topic of the name knows none of them.
        if existing is None or existing.record.epoch != record.epoch:
            self._topics[record.name] = _Topic(record, self._limits)
        else:
            existing.record = record
        if mark:
            self._topics[record.name].filled = mark

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its senders' state."""
        del self._topics[name]

    async def settle(self) -> None:
        """Do nothing: there is nothing safer than this memory."""

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Assign offsets and record the sender's state in one step.

        Raises:
            HeadMoved: `expected_head` is not the topic's last offset, `epoch` not its epoch, or the
                topic not where `fill` begins.
            Refused: producer-fenced, idempotency-conflict, limit-reached.
        """
        appended = self._topics[topic].append(publication)
        self._commits += not appended.duplicate
        return appended

    async def filled(self, topic: str) -> str:
        """Return the mark up to which a derived topic is filled."""
        return self._topics[topic].filled

    async def confirm_epoch(self, name: str, seen: int) -> str:
        """Return the current epoch: this store cannot lose data while the process runs."""
        return self._topics[name].record.epoch

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Store a stage, in place of an earlier one of that name.

        Raises:
            Refused: limit-reached.
        """
        stages = self._topics[topic].stages
        stage = _Stage(now_ms, items, sum(len(item.payload) for item in items))
        size_bytes = stage.size_bytes
        # Those of all topics: anybody may have as many topics as there may be.
        for each in [it.stages for it in self._topics.values() if it.stages]:
            # Expired stages go when a new one comes: no task has to look for them.
            for old in [old for old, it in each.items() if it.at_ms + STAGE_MS <= now_ms]:
                del each[old]
            size_bytes += sum(it.size_bytes for it in each.values())
        # A stage that is replaced makes room for itself.
        replaced = stages.get(name)
        size_bytes -= 0 if replaced is None else replaced.size_bytes
        self._limits.check_stages(len(stages) + (replaced is None), size_bytes)
        stages[name] = stage

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> Staged | None:
        """Return what stages hold; None if a stage does not exist."""
        stages = self._topics[topic].stages
        found: list[Item] = []
        for name in names:
            stage = stages.get(name)
            if stage is None or stage.at_ms + STAGE_MS <= now_ms:
                return None
            found += stage.items
        return Staged(found, dict.fromkeys(names, ""))

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Do nothing: the store keeps no records."""

    async def fault(self) -> str | None:
        """Return None: memory is always writable."""
        return None

    async def aclose(self) -> None:
        """Do nothing: the store holds no resources."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """The items of a stage, its time, and the bytes of its payloads."""

    at_ms: int
    items: Sequence[Item]
    size_bytes: int


@dataclass(slots=True, eq=False)
class _Topic:
    """One topic's state; `producers` have run and sequence, `retries` are in order of age."""

    record: TopicRecord
    limits: Bounds
    last: int = 0
    filled: str = ""
    producers: dict[str, Producer] = field(default_factory=dict)
    retries: dict[str, tuple[Retry, int, Appended]] = field(default_factory=dict)
    stages: dict[str, _Stage] = field(default_factory=dict)

    def append(self, publication: Publication) -> Appended:
        if publication.retry is not None:
            earlier = self._earlier_result(publication.retry, publication.timestamp_ms)
            if earlier is not None:
                return earlier
        if publication.producer is not None and not self._is_new(publication.producer):
            highest = self.producers[publication.producer.name].sequence
            return Appended(0, 0, duplicate=True, highest=highest)
        # After the duplicates: a repetition gets its answer whatever was written since.
        is_decided_here = publication.epoch in (None, self.record.epoch)
        if publication.expected_head not in (None, self.last) or not is_decided_here:
            raise HeadMoved
        fill = publication.fill
        if fill is not None and fill.since != self.filled:
            raise HeadMoved
        producer, retry = publication.producer, publication.retry
        if producer is not None and producer.name not in self.producers:
            self.limits.check_producers(len(self.producers) + 1)
        if retry is not None:
            self.limits.check_retry_keys(len(self.retries) + 1)
        if producer is not None:
            self.producers[producer.name] = producer
        if fill is not None:
            self.filled = fill.mark
        appended = Appended(self.last + 1, self.last + len(publication.items))
        self.last = appended.last
        for name in publication.stages:
            self.stages.pop(name, None)
        if retry is not None:
            self.retries[retry.name] = retry, publication.timestamp_ms, appended
        return appended

    def _earlier_result(self, retry: Retry, now_ms: int) -> Appended | None:
        """Return the earlier result of a repeated request, or None."""
        # Retries are in order of age, so the expired ones come first.
        while self.retries and next(iter(self.retries.values()))[1] + RETRY_MS <= now_ms:
            del self.retries[next(iter(self.retries))]
        if retry.name not in self.retries:
            return None
        first, _, appended = self.retries[retry.name]
        if first.digest != retry.digest:
            raise key_used_otherwise()
        return Appended(appended.first, appended.last, duplicate=True)

    def _is_new(self, producer: Producer) -> bool:
        """Return whether the sequence is above the highest; record a newer run in any case."""
        highest = self.producers.get(producer.name)
        if highest is None:
            return True
        if producer.run < highest.run:
            raise run_superseded()
        if producer.sequence > highest.sequence:
            return True
        # Noted for a duplicate as well: from now on requests of older runs are fenced.
        self.producers[producer.name] = Producer(highest.name, highest.sequence, producer.run)
        return False
