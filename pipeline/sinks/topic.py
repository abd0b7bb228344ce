"""Writes the winners of a micro-batch to a topic: once, in publication order, in one step.

A task on an executor keeps them aside at the gateway in stages; the driver then commits the stages
of the attempt that Spark took. The number of a commit is the batch's, so a batch that is run again,
by whichever attempt or driver, publishes nothing more; and what an older run of the stream still
sends is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pipeline.errors import GatewayRefused
from pipeline.gateway import Gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGE_MESSAGES_MAX = 10_000
STAGE_BYTES_MAX = 8 * 1024 * 1024
STAGED_AHEAD_S_MAX = 600.0  # far below the hour for which a gateway keeps a stage
REPORT = "messages long, staged long, refused long, stages array<string>"
ARROW_REPORT = pa.schema(
    [
        ("messages", pa.int64()),
        ("staged", pa.int64()),
        ("refused", pa.int64()),
        ("stages", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a micro-batch.

    `messages` it read; `published` rows it wrote; `repeated` rows that an earlier try had
    written; `refused` lines that went to the dead letters; `sent_at_s` monotonic time of the
    commit's answer, 0 if there was nothing to commit.
    """

    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    sent_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What one task did: messages read, rows staged, lines refused; the stages in their order."""

    messages: int
    staged: int
    refused: int
    stages: list[str]


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """Where and as whom a stream writes; travels to the executors that stage.

    `run` counts the lives of the stream: it rises with each start.
    """

    gateway: str
    topic: str
    producer: str
    run: int
    dead_letters: str

    def write(self, rows: DataFrame, batch_id: int, not_before_s: float = 0.0) -> Receipt:
        """Publish one micro-batch; `rows` as `conflate` makes them.

        Nothing is committed before `not_before_s` (monotonic), which keeps two batches from
        bringing a key twice within an interval. Counts and names of stages come to the driver,
        no messages.
        """

        def stage_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            attempt = context.taskAttemptId() if context else 0
            with Gateway(self.gateway) as gateway:
                staging = Staging(self, gateway, batch_id, attempt)
                for batch in batches:
                    staging.take(batch)
                staging.end()
            yield pa.RecordBatch.from_pylist([asdict(staging.report())], schema=ARROW_REPORT)

        _sleep_until(not_before_s - STAGED_AHEAD_S_MAX)
        # One task, as a topic has one order.
        in_order = rows.repartition(1).sortWithinPartitions("part", "row")
        reports = [Report(*row) for row in in_order.mapInArrow(stage_task, REPORT).collect()]
        _sleep_until(not_before_s)
        return self.commit(reports, batch_id)

    def commit(self, reports: Sequence[Report], batch_id: int) -> Receipt:
        """Publish what tasks have staged, in the order of their reports, unless it has been.

        Raises:
            GatewayRefused: a newer run of the stream has committed, or stages are gone.
        """
        stages = [name for report in reports for name in report.stages]
        staged = sum(report.staged for report in reports)
        is_new, sent_at_s = False, 0.0
        if stages:
            with Gateway(self.gateway) as gateway:
                is_new = gateway.commit(self.topic, self.producer, self.run, batch_id, stages)
            sent_at_s = time.monotonic()
        return Receipt(
            messages=sum(report.messages for report in reports),
            published=staged if is_new else 0,
            repeated=0 if is_new else staged,
            refused=sum(report.refused for report in reports),
            sent_at_s=sent_at_s,
        )


@dataclass
class Staging:
    """One task's part of a micro-batch on its way out, on an executor.

    No two attempts, batches or runs share a stage: `attempt` is the task attempt's own number.
    """

    writer: TopicWriter
    gateway: Gateway
    batch_id: int
    attempt: int
    lines: list[bytes] = field(default_factory=list)
    lines_bytes: int = 0
    messages: int = 0
    staged: int = 0
    stages: list[str] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)

    def end(self) -> None:
        """Stage what is left, then write down the dead letters."""
        self._stage()
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

    def report(self) -> Report:
        """What was done so far."""
        return Report(self.messages, self.staged, len(self.refused), self.stages)

    def _add(self, line: bytes) -> None:
        full = len(self.lines) == STAGE_MESSAGES_MAX
        if full or self.lines_bytes + len(line) >= STAGE_BYTES_MAX:
            self._stage()
        self.lines.append(line)
        self.lines_bytes += len(line) + 1

    def _stage(self) -> None:
        if not self.lines:
            return
        writer = self.writer
        place = f"{writer.run}.{self.batch_id}.{self.attempt}.{len(self.stages)}"
        name = f"{writer.producer}.{place}"
        self.gateway.stage(writer.topic, b"\n".join(self.lines) + b"\n", writer.producer, name)
        self.stages.append(name)
        self.staged += len(self.lines)
        self.lines, self.lines_bytes = [], 0

    def _bury(self) -> None:
        """Write the dead letters under the batch's name, so that a replay writes them once."""
        if not self.refused:
            return
        folder = Path(self.writer.dead_letters)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"batch-{self.batch_id:09d}.ndjson"
        unfinished = target.with_suffix(f".{self.writer.run}.{self.attempt}.unfinished")
        unfinished.write_bytes(b"".join(self.refused))
        unfinished.replace(target)


def _sleep_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.monotonic()))


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
