"""The query that archives a topic: it continues after the last archived position."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.keys.archived import Part, reach
from tidegate.keys.text.bookmark import START, join_bookmark
from tidegate.pipeline.archive.folder import TopicFolder, compact_day, is_crowded
from tidegate.pipeline.archive.writing import (
    ARROW_REPORT,
    REPORT,
    Edge,
    archive_rows,
    edge_of,
    write_parts,
)
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.errors import ArchiveUnusable, PipelineError, SourceLost
from tidegate.pipeline.operations.spark_run import QueryStream, spark_errors
from tidegate.pipeline.operations.status import BatchCount
from tidegate.pipeline.operations.supervisor import Say
from tidegate.pipeline.operations.watch import stop_queries
from tidegate.pipeline.sinks.tasks import task_attempt
from tidegate.pipeline.sources.source import journal_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 200_000
COMPACTS_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """Which topic of which gateway is archived, how often, and where Spark notes how far it is.

    Without an interval what is there now is archived.
    """

    gateway: str
    topic: str
    interval_ms: int | None
    checkpoint: Path


class Archiving(QueryStream):
    """A stream that archives one topic.

    Its name has a dot, so that no stream of a definition file has the same.

    Args:
        folder: locked by this process.
        job: what is to be done.
        epoch: the topic's.
        ask_epoch: returns the topic's current epoch; raises PipelineError.
        say: gets a line when something has changed.
    """

    held_keys = None
    merger_failures = None

    def __init__(
        self,
        folder: TopicFolder,
        job: ArchiveJob,
        epoch: str,
        ask_epoch: Callable[[], str],
        say: Say,
    ) -> None:
        super().__init__(f"journal.{job.topic}")
        self._folder = folder
        self._job = job
        self._epoch = epoch
        self._ask_epoch = ask_epoch
        self._say = say
        self._run = secrets.token_hex(4)
        self._compacts_at_s = 0.0

    def mends(self, error: PipelineError) -> bool:
        """Return whether a new start mends an error: the topic has begun again."""
        if not isinstance(error, SourceLost):
            return False
        try:
            return self._ask_epoch() != self._epoch
        except PipelineError:
            return True  # the gateway does not answer: the next start will ask again

    def start(self, spark: SparkSession) -> None:
        """Go on after the last position that the archive has of the topic's epoch.

        Raises:
            ArchiveUnusable: it is not whole, or was removed.
            PipelineError: the gateway does not give the topic's epoch.
        """
        with spark_errors(self.name):
            if self.query is not None:
                self._follow_epoch()
            self._start_query(spark)

    def _start_query(self, spark: SparkSession) -> None:
        job, epoch = self._job, self._epoch
        edge = self._edge(epoch)
        start = START if edge.position is None else join_bookmark(epoch, edge.position)
        source = TopicSource(job.topic, start, ROWS_PER_BATCH)
        writer = (
            journal_rows(spark, source, job.gateway, job.checkpoint / epoch)
            .writeStream.queryName(self.name)
            .option("checkpointLocation", str(job.checkpoint / epoch))
            .foreachBatch(partial(self._write_batch, epoch))
        )
        if job.interval_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{job.interval_ms} milliseconds")
        self.query = writer.start()

    def stop(self) -> None:
        """End it between two batches; one that does not end is repeated next time."""
        stop_queries([self.query])

    def _follow_epoch(self) -> None:
        epoch = self._ask_epoch()
        if epoch != self._epoch:
            self._epoch = epoch
            self._say(f"{self._job.topic} has begun again: its epoch is {epoch} from now on")

    def _write_batch(self, epoch: str, rows: DataFrame, number: int) -> None:
        with self._timed_batch():
            self._archive(rows, epoch, number)

    def _edge(self, epoch: str) -> Edge:
        """Return where the archive ends, as seen from an epoch.

        Raises:
            ArchiveUnusable: its last file is not whole, or it was removed.
        """
        self._folder.require_lock()
        parts = self._folder.parts()
        if not parts:
            return Edge(epoch, None, 0)
        last = edge_of(self._folder.file(parts[-1]), parts[-1])
        found = reach(parts, epoch)
        if found is None:  # later than every part there is, so that parts sort by epoch
            return Edge(epoch, None, last.clock_ms + 1)
        return Edge(epoch, found[1], last.clock_ms)

    def _archive(self, rows: DataFrame, epoch: str, number: int) -> None:
        """Write the new rows of a batch in one task, and publish the files one by one."""
        folder, edge = self._folder, self._edge(epoch)
        # A task may outlive a driver that was killed, and write while those of the next one do.
        unfinished, attempts = folder.unfinished, f"{self._run}.{number}"

        def write_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = (archive_rows(read, epoch) for read in batches)
            for written in write_parts(found, edge, unfinished, f"{attempts}.{task_attempt()}"):
                row = {"name": written.name, **asdict(written.part)}
                yield pa.RecordBatch.from_pylist([row], schema=ARROW_REPORT)

        # One task: files must come in order of position, each after the one before.
        reports = rows.coalesce(1).mapInArrow(write_task, REPORT).collect()
        parts = [Part(*part) for _, *part in reports]
        for report, part in zip(reports, parts, strict=True):
            folder.publish(report[0], part)
        messages = sum(part.last - part.first + 1 for part in parts)
        if messages:  # a batch that comes again has done nothing
            self.totals = self.totals.with_batch(BatchCount(messages, published=messages))
        self._compact()

    def _compact(self) -> None:
        """Merge a day's small files once there are many; also the day before, which may have ended.

        A failure, such as a full disk, does not stop the next batch.
        """
        if time.monotonic() < self._compacts_at_s:
            return
        try:
            for day in self._folder.days()[-2:]:
                if is_crowded(day):
                    compact_day(self._folder, day)
        except ArchiveUnusable as error:  # what cannot be done now cannot be done later either
            self._compacts_at_s = math.inf
            self._say(str(error))
        except OSError as error:
            self._compacts_at_s = time.monotonic() + COMPACTS_AGAIN_S
            self._say(f"{self.name}: small files stay as they are: {error.strerror or error}")
