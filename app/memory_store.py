"""The store of `--data :memory:`: numbers messages and keeps nothing beyond the process.

The messages themselves are in the engine's journals; what is here is what must not be asked
of them: who has which number.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.store import Appended, Item, Producer, TopicRecord


class MemoryStore:
    """Definitions, last offsets and producers' highest numbers, in dicts."""

    survives_process = False

    def __init__(self) -> None:
        self._records: dict[str, TopicRecord] = {}
        self._last: dict[str, int] = {}
        self._sequences: dict[tuple[str, str], int] = {}

    async def records(self) -> Sequence[TopicRecord]:
        """Every topic there is."""
        return list(self._records.values())

    async def put_topic(self, record: TopicRecord) -> None:
        """Create a topic or replace its document; a new epoch begins at offset 1."""
        known = self._records.get(record.name)
        if known is None or known.epoch != record.epoch:
            self._last[record.name] = 0
            self._forget_producers(record.name)
        self._records[record.name] = record

    async def delete_topic(self, name: str) -> None:
        """Forget a topic and its producers."""
        del self._records[name], self._last[name]
        self._forget_producers(name)

    async def append(
        self, topic: str, items: Sequence[Item], timestamp_ms: int, producer: Producer | None
    ) -> Appended:
        """Number items; a producer's number is noted in the same step."""
        if producer is not None:
            highest = self._sequences.get((topic, producer.name), -1)
            if producer.sequence <= highest:
                return Appended(0, 0, duplicate=True)
            self._sequences[topic, producer.name] = producer.sequence
        first = self._last[topic] + 1
        self._last[topic] += len(items)
        return Appended(first, self._last[topic])

    async def aclose(self) -> None:
        """Nothing to let go."""

    def _forget_producers(self, topic: str) -> None:
        for producer in [known for known in self._sequences if known[0] == topic]:
            del self._sequences[producer]
