"""The store of `--data :memory:`: numbers messages and keeps nothing beyond the process.

The messages themselves are in the engine's journals; what is here is what must not be asked
of them: who has which number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.problems import Problem
from app.stores.bounds import Bounds
from app.stores.figures import StoreFigures
from app.stores.store import (
    Appended,
    Checkpoint,
    HeadMoved,
    Item,
    Kept,
    Producer,
    Publication,
    Retry,
    TopicRecord,
)

RETRY_MS = 24 * 3_600_000
"""For so long a retry of a request is known as one (CONTRACT 3)."""

STAGE_MS = 3_600_000
"""For so long a stage waits for its commit (CONTRACT 3)."""


NORMAL = Bounds()


class MemoryStore:
    """Definitions, last offsets and what is known of senders, in dicts."""

    survives_process = False
    checkpoints = False

    def __init__(self, bounds: Bounds = NORMAL) -> None:
        self._bounds = bounds
        self._topics: dict[str, _Topic] = {}
        self._commits = 0

    def figures(self) -> StoreFigures:
        """Every write is one by itself, and none waits."""
        return StoreFigures(self._commits)

    async def open(self) -> None:
        """There is nothing to reach."""

    async def records(self) -> Sequence[TopicRecord]:
        """Every topic there is."""
        return [topic.record for topic in self._topics.values()]

    async def kept(self, name: str) -> Kept:
        """Nothing is."""
        return Kept()

    async def put_topic(self, record: TopicRecord) -> None:
        """Create a topic or replace its document; a new epoch begins at offset 1."""
        known = self._topics.get(record.name)
        if known is None or known.record.epoch != record.epoch:
            self._topics[record.name] = _Topic(record, self._bounds)
        else:
            known.record = record

    async def delete_topic(self, name: str) -> None:
        """Forget a topic and its producers."""
        del self._topics[name]

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Number items; what is noted of their sender is noted in the same step.

        Raises:
            HeadMoved: `expected_head` is not the topic's last offset.
            Problem: producer-fenced, idempotency-conflict, limit-reached.
        """
        appended = self._topics[topic].append(publication)
        self._commits += not appended.duplicate
        return appended

    async def renew(self, name: str, seen: int) -> str:
        """The epoch that there is: nothing of another life is here."""
        return self._topics[name].record.epoch

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Keep items aside; those of an earlier stage of that name are forgotten.

        Raises:
            Problem: limit-reached.
        """
        stages = self._topics[topic].stages
        for old in [old for old, stage in stages.items() if stage.at_ms + STAGE_MS <= now_ms]:
            del stages[old]
        stage = _Stage(now_ms, items, sum(len(item.payload) for item in items))
        others = [other.size_bytes for known, other in stages.items() if known != name]
        self._bounds.check_stages(len(others) + 1, sum(others) + stage.size_bytes)
        stages[name] = stage

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> list[Item] | None:
        """The items of stages, in the order of the names; None if one is not there (any more)."""
        stages = self._topics[topic].stages
        found: list[Item] = []
        for name in names:
            stage = stages.get(name)
            if stage is None or stage.at_ms + STAGE_MS <= now_ms:
                return None
            found += stage.items
        return found

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Nothing is kept."""

    async def fault(self) -> str | None:
        """There is always room, or none for the process."""
        return None

    async def aclose(self) -> None:
        """Nothing to let go."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """What is kept aside, since when, and the bytes of its payloads."""

    at_ms: int
    items: Sequence[Item]
    size_bytes: int


@dataclass(slots=True, eq=False)
class _Topic:
    """One topic's numbers: `producers` have their run and sequence, `retries` come by age."""

    record: TopicRecord
    bounds: Bounds
    last: int = 0
    producers: dict[str, Producer] = field(default_factory=dict)
    retries: dict[str, tuple[Retry, int, Appended]] = field(default_factory=dict)
    stages: dict[str, _Stage] = field(default_factory=dict)

    def append(self, publication: Publication) -> Appended:
        known = self._again(publication.retry, publication.timestamp_ms)
        if known is not None:
            return known
        if publication.producer is not None and not self._is_news(publication.producer):
            self._forget(publication.stages)
            return Appended(0, 0, duplicate=True)
        if publication.expected_head not in (None, self.last):
            raise HeadMoved
        self._check_room(publication)
        if publication.producer is not None:
            self.producers[publication.producer.name] = publication.producer
        appended = Appended(self.last + 1, self.last + len(publication.items))
        self.last = appended.last
        self._forget(publication.stages)
        if publication.retry is not None:
            retry = publication.retry
            self.retries[retry.name] = retry, publication.timestamp_ms, appended
        return appended

    def _check_room(self, publication: Publication) -> None:
        producer = publication.producer
        if producer is not None and producer.name not in self.producers:
            self.bounds.check_producers(len(self.producers) + 1)
        if publication.retry is not None:
            self.bounds.check_retry_keys(len(self.retries) + 1)

    def _forget(self, stages: Sequence[str]) -> None:
        for name in stages:
            self.stages.pop(name, None)

    def _again(self, retry: Retry | None, now_ms: int) -> Appended | None:
        """What a request was answered that comes again."""
        if retry is None:
            return None
        while self.retries and next(iter(self.retries.values()))[1] + RETRY_MS <= now_ms:
            del self.retries[next(iter(self.retries))]
        if retry.name not in self.retries:
            return None
        first, _, appended = self.retries[retry.name]
        if first.digest != retry.digest:
            detail = "The Idempotency-Key was used for another request."
            raise Problem("idempotency-conflict", detail)
        return Appended(appended.first, appended.last, duplicate=True)

    def _is_news(self, producer: Producer) -> bool:
        """Whether its number is above its highest; the newest run is noted in any case."""
        highest = self.producers.get(producer.name)
        if highest is None:
            return True
        if producer.run < highest.run:
            raise Problem("producer-fenced", "A newer run of this producer has committed.")
        if producer.sequence > highest.sequence:
            return True
        self.producers[producer.name] = Producer(highest.name, highest.sequence, producer.run)
        return False
