"""Writes the winners of a micro-batch to a topic: once, in publication order.

One task on one executor posts them as a numbered producer. The number of a request follows
from the batch and the chunk, and a replayed batch has the same rows in the same order, so a
request that was sent before is answered as duplicate and publishes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pipeline.errors import GatewayRefused
from pipeline.gateway import Gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK_MESSAGES_MAX = 10_000
CHUNK_BYTES_MAX = 8 * 1024 * 1024
CHUNKS_PER_BATCH_MAX = 2**20
RECEIPT = "messages long, published long, repeated long, refused long, sent_at_ms long"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a micro-batch.

    `messages` it read; `published` rows it wrote; `repeated` rows that an earlier try had
    written; `refused` lines that went to the dead letters; `sent_at_ms` wall clock of the
    last answer, 0 if nothing was sent.
    """

    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    sent_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """Where and as whom a stream writes; travels to the executor that writes."""

    gateway: str
    topic: str
    producer: str
    dead_letters: str

    def write(self, rows: DataFrame, batch_id: int, not_before_ms: int = 0) -> Receipt:
        """Publish one micro-batch; `rows` as `conflate` makes them.

        Nothing is sent before `not_before_ms` (wall clock), which keeps two batches from
        bringing a key twice within an interval. One row of counts comes back, no messages.
        """

        def write_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with Gateway(self.gateway) as gateway:
                writing = BatchWriting(self, gateway, batch_id, not_before_ms)
                for batch in batches:
                    writing.take(batch)
                writing.end()
            yield writing.receipt_batch()

        in_order = rows.repartition(1).sortWithinPartitions("part", "row")
        counts = in_order.mapInArrow(write_task, RECEIPT).collect()
        return Receipt(*counts[0]) if counts else Receipt()


@dataclass
class BatchWriting:
    """One micro-batch on its way out, on the executor."""

    writer: TopicWriter
    gateway: Gateway
    batch_id: int
    not_before_ms: int
    chunk: list[bytes] = field(default_factory=list)
    chunk_bytes: int = 0
    chunks: int = 0
    messages: int = 0
    published: int = 0
    repeated: int = 0
    sent_at_ms: int = 0
    refused: list[bytes] = field(default_factory=list)

    def end(self) -> None:
        """Send what is left, then write down the dead letters."""
        self._send()
        self._bury()

    def take(self, batch: pa.RecordBatch) -> None:
        """Add rows, which come in publication order."""
        columns = [batch.column(name).to_pylist() for name in ("line", "messages", "reason")]
        places = zip(batch.column("part").to_pylist(), batch.column("row").to_pylist(), strict=True)
        for line, messages, reason, place in zip(*columns, places, strict=True):
            self.messages += messages
            if reason is None:
                self._add(line)
            else:
                self.refused.append(_dead_letter(line, reason, place))

    def receipt_batch(self) -> pa.RecordBatch:
        """The counts, one row as in `RECEIPT`."""
        counts = {
            "messages": self.messages,
            "published": self.published,
            "repeated": self.repeated,
            "refused": len(self.refused),
            "sent_at_ms": self.sent_at_ms,
        }
        return pa.RecordBatch.from_pylist([counts])

    def _add(self, line: bytes) -> None:
        full = len(self.chunk) == CHUNK_MESSAGES_MAX
        if full or self.chunk_bytes + len(line) >= CHUNK_BYTES_MAX:
            self._send()
        self.chunk.append(line)
        self.chunk_bytes += len(line) + 1

    def _send(self) -> None:
        if not self.chunk:
            return
        if self.chunks == 0:
            time.sleep(max(0.0, self.not_before_ms / 1000 - time.time()))
        sequence = self.batch_id * CHUNKS_PER_BATCH_MAX + self.chunks + 1
        body = b"\n".join(self.chunk) + b"\n"
        if self.gateway.publish(self.writer.topic, body, self.writer.producer, sequence):
            self.published += len(self.chunk)
        else:
            self.repeated += len(self.chunk)
        self.sent_at_ms = time.time_ns() // 1_000_000
        self.chunks += 1
        self.chunk, self.chunk_bytes = [], 0

    def _bury(self) -> None:
        """Write the dead letters under the batch's name, so that a replay writes them once."""
        if not self.refused:
            return
        folder = Path(self.writer.dead_letters)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"batch-{self.batch_id:09d}.ndjson"
        unfinished = target.with_suffix(f".{os.getpid()}.unfinished")
        unfinished.write_bytes(b"".join(self.refused))
        unfinished.replace(target)


def _dead_letter(line: bytes, reason: str, place: tuple[str, int]) -> bytes:
    part, row = place
    letter: dict[str, Any] = {
        "reason": reason,
        "file": part.split("\0")[1] if "\0" in part else None,
        "row": row,
        "line": line.decode("utf-8", "backslashreplace"),
    }
    return msgspec.json.encode(letter) + b"\n"


def require_sink(gateway: Gateway, topic: str, definition: dict[str, Any]) -> None:
    """Create the sink topic unless it is there with the same key.

    Raises:
        GatewayRefused: it exists with another key, or the gateway does not want it.
    """
    found = gateway.topic(topic)
    if found is None:
        gateway.create_topic(topic, definition)
        return
    if found.get("key") != definition["key"]:
        raise GatewayRefused(
            f"topic {topic} exists with key {found.get('key')}, the stream's is {definition['key']}"
        )
