"""`tidegate pipeline journal TOPIC --to DIR`: a topic's journal, kept as Parquet for good."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from keys.archived import Part, reach
from pipeline.archive.compaction import compact, compact_day, is_crowded
from pipeline.archive.folder import TopicFolder
from pipeline.archive.progress import Progress, Report, Stopped, ToldWaiting, complain, say
from pipeline.archive.rows import archive_rows
from pipeline.archive.writing import ARROW_REPORT, REPORT, Edge, edge_of, write_parts
from pipeline.bookmark import START, join_bookmark, split_bookmark
from pipeline.datasource.journal import open_journal
from pipeline.datasource.options import ReadOptions
from pipeline.definitions.duration import duration_ms
from pipeline.definitions.names import TOPIC
from pipeline.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    ArchiveUnusable,
    GatewayRefused,
    PipelineError,
    SourceLost,
    UsageInvalid,
    from_spark,
)
from pipeline.operations.stop import Stop
from pipeline.patience import IN_SILENCE, Waiting
from pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_BATCH = 200_000
LAST_BATCH_SECONDS_MAX = 4.0
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Wish:
    """The command's arguments as they are given."""

    topic: str
    archive: Path
    gateway: str
    checkpoint: Path | None
    interval: str
    available_now: bool
    compact: bool
    master: str


@dataclass(frozen=True, slots=True)
class Totals:
    """What was archived since the start."""

    batches: int = 0
    messages: int = 0


def journal(wish: Wish) -> int:
    """Archive until told to stop, or all is archived; returns the exit code of the command line.

    0: stopped by SIGTERM, with `available_now` when all is archived, with `compact` when files
    are put together; 130: by SIGINT; else 1, 2, 3 or 78 after one line on standard error.
    """
    stop = Stop()
    try:
        with stop.listening(), suppress(Stopped):
            keep(wish, stop, say, waiting=ToldWaiting(stop, complain))
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        complain(f"{wish.archive}: {error.strerror or error}")
        return ArchiveUnusable.exit_code
    return EXIT_INTERRUPTED if stop.interrupted else EXIT_DONE


def keep(
    wish: Wish,
    stop: Stop,
    report: Report,
    spark: SparkSession | None = None,
    waiting: Waiting = IN_SILENCE,
) -> Totals:
    """As `journal`, with errors raised and lines given to `report`.

    Args:
        wish: what is asked for.
        stop: ends it.
        report: is told how far it is.
        spark: for tests; else one is started.
        waiting: what to do while the gateway does not answer.

    Raises:
        PipelineError: what ended it, as one sentence.
        Stopped: `waiting` has ended it.
    """
    interval_ms = _interval_ms(wish)
    folder = TopicFolder(wish.archive, wish.topic)
    if wish.compact and not folder.path.exists():
        raise UsageInvalid(f"{wish.archive}: holds no archive of topic {wish.topic}")
    with folder.locked():
        if wish.compact:
            report(f"{wish.topic}: {compact(folder)} files fewer")
            return Totals()
        epoch = _epoch(wish, waiting)
        report(f"starting Spark on {wish.master}")
        session = spark or open_session(wish.master)
        archiving = Archiving(folder, wish, Progress(report, time.monotonic))
        try:
            while not stop.asked:
                archiving.start(session, epoch, interval_ms)
                ended = archiving.watch(stop)
                if ended is None:
                    break
                epoch = _another(epoch, _epoch(wish, waiting), ended)
                report(f"{wish.topic} has begun again: its epoch is {epoch} from now on")
        finally:
            archiving.stop()
            if spark is None:
                session.stop()
        archiving.say()
        return archiving.totals


class Archiving:
    """A topic on its way into its folder."""

    def __init__(self, folder: TopicFolder, wish: Wish, progress: Progress) -> None:
        self.totals = Totals()
        self._folder = folder
        self._wish = wish
        self._progress = progress
        self._run = secrets.token_hex(4)
        self._query: StreamingQuery | None = None
        self._compacts = True

    def start(self, spark: SparkSession, epoch: str, interval_ms: int) -> None:
        """Go on behind what the archive has of this epoch."""
        edge = self._edge(epoch)
        checkpoint = self._wish.checkpoint or self._folder.path / "_checkpoint"
        stream = (
            spark.readStream.format("tidegate")
            .option("gateway", self._wish.gateway)
            .option("topic", self._wish.topic)
            .option("from", START if edge.position is None else join_bookmark(epoch, edge.position))
            .option("rows_per_batch", ROWS_PER_BATCH)
            .load()
        )

        def archive(rows: DataFrame, batch_id: int) -> None:
            self._archive(rows, epoch, batch_id)

        writer = stream.writeStream.option("checkpointLocation", str(checkpoint / epoch))
        writer = writer.foreachBatch(archive)
        if self._wish.available_now:
            self._query = writer.trigger(availableNow=True).start()
        else:
            self._query = writer.trigger(processingTime=f"{interval_ms} milliseconds").start()

    def watch(self, stop: Stop) -> PipelineError | None:
        """Until it has ended, or is to: None. The error where messages are gone.

        Raises:
            PipelineError: another reason for its end.
        """
        query = self._query
        assert query is not None, "it was started"
        while not stop.asked:
            failure = query.exception()
            if failure is not None:
                error = from_spark(self._wish.topic, str(failure))
                if isinstance(error, SourceLost):
                    return error
                raise error from None
            if not query.isActive:
                return None
            self._progress.look(self.line)
            stop.wait(LOOK_EVERY_S)
        return None

    def stop(self) -> None:
        """Let the batch that is under way end; one that does not is repeated next time."""
        query, give_up_at = self._query, time.monotonic() + LAST_BATCH_SECONDS_MAX
        if query is None:
            return
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up_at:
            time.sleep(LOOK_EVERY_S / 2)
        query.stop()

    def say(self) -> None:
        """Say what was done."""
        self._progress.say(self.line())

    def line(self) -> str:
        """What was done so far."""
        done = self.totals
        return f"{self._wish.topic}: {done.batches:,} batches, {done.messages:,} messages archived"

    def _edge(self, epoch: str) -> Edge:
        """Where the archive ends, as seen from an epoch."""
        parts = self._folder.parts()
        if not parts:
            return Edge(epoch, None, 0)
        last = edge_of(self._folder.file(parts[-1]), parts[-1])
        found = reach(parts, epoch)
        if found is None:  # behind all that is there, so that parts of epochs stand in order
            return Edge(epoch, None, last.clock_ms + 1)
        return Edge(epoch, found[1], last.clock_ms)

    def _archive(self, rows: DataFrame, epoch: str, batch_id: int) -> None:
        """Have one task write what is new of a batch, and let it be seen, file by file."""
        folder, edge = self._folder, self._edge(epoch)
        # A task may outlive a driver that was killed, and write on beside those of the next one.
        unfinished, attempts = folder.unfinished, f"{self._run}.{batch_id}"

        def write_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            prefix = f"{attempts}.{context.taskAttemptId() if context else 0}"
            found = (archive_rows(read, epoch) for read in batches)
            for written in write_parts(found, edge, unfinished, prefix):
                row = {"name": written.name, **asdict(written.part)}
                yield pa.RecordBatch.from_pylist([row], schema=ARROW_REPORT)

        reports = rows.coalesce(1).mapInArrow(write_task, REPORT).collect()
        parts = [Part(*part) for _, *part in reports]
        for report, part in zip(reports, parts, strict=True):
            folder.publish(report[0], part)
        messages = sum(part.last - part.first + 1 for part in parts)
        self.totals = Totals(self.totals.batches + 1, self.totals.messages + messages)
        self._compact()

    def _compact(self) -> None:
        """Put small files together once a day has many; the day before may have just ended."""
        for day in self._folder.days()[-2:] if self._compacts else ():
            try:
                if is_crowded(day):
                    compact_day(self._folder, day)
            except ArchiveUnusable as error:  # what cannot be done now cannot be done later either
                self._compacts = False
                self._progress.say(str(error))


def _interval_ms(wish: Wish) -> int:
    interval_ms = duration_ms(wish.interval)
    if not TOPIC.fullmatch(wish.topic):
        raise UsageInvalid(f"{wish.topic[:100]!r} is no name of a topic")
    if interval_ms is None:
        raise UsageInvalid(f"--interval: expected 1ms to 1d, such as 10s, not {wish.interval!r}")
    return interval_ms


def _epoch(wish: Wish, waiting: Waiting) -> str:
    """The topic's epoch at the gateway."""
    with open_journal(ReadOptions(wish.gateway, wish.topic), waiting) as journal:
        found = journal.ends()
    if found.epoch is not None:
        return found.epoch
    if found.last is None:
        raise GatewayRefused(f"{wish.gateway} does not tell the epoch of topic {wish.topic}")
    return split_bookmark(found.last)[0]


def _another(before: str, epoch: str, lost: PipelineError) -> str:
    """The epoch in which the topic goes on, if that is why messages are gone."""
    if epoch == before:
        raise lost
    return epoch
