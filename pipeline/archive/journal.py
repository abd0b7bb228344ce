"""`tidegate pipeline journal TOPIC --to DIR`: a topic's journal, kept as Parquet."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.clients.retry import Retry
from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.bookmark import split_bookmark
from tidegate.keys.text.duration import parse_interval, whole_ms
from tidegate.pipeline.archive.archiving import ArchiveJob, Archiving
from tidegate.pipeline.archive.folder import TopicFolder, TopicShape, compact
from tidegate.pipeline.connection import AT_ONCE, PATIENT, reported_retry
from tidegate.pipeline.definitions.toml import TOPIC
from tidegate.pipeline.errors import GatewayRefused, UsageInvalid
from tidegate.pipeline.format.journal import open_journal
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.operations.shutdown import (
    Stop,
    print_error,
    print_line,
    until_stopped,
)
from tidegate.pipeline.operations.status import Totals, progress_line
from tidegate.pipeline.operations.supervisor import RunOptions, Say, StartGate, Supervisor
from tidegate.pipeline.operations.watch import (
    ending_in_order,
    outliving_its_jvm,
    status_sinks,
    watch,
)
from tidegate.pipeline.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class JournalArguments:
    """The command's arguments as they are given."""

    topic: str
    archive: Path
    gateway: str
    checkpoint: Path | None
    interval: str
    compact: bool
    options: RunOptions

    @property
    def source(self) -> ReadOptions:
        """The options by which the journal is read."""
        return ReadOptions(self.gateway, self.topic)


def journal(arguments: JournalArguments) -> int:
    """Archive until stopped; return the exit code, as `until_stopped` does.

    With `available_now` it ends when all is archived, with `compact` when files are put together.

    Raises:
        CutOff: a signal has come before it ran, or while it waited for its next start.
    """

    def run(stop: Stop) -> None:
        retry = reported_retry(arguments.source.gateway, print_error, stop.pause)
        archive_topic(arguments, stop, print_line, retry=retry)

    return until_stopped(run, arguments.archive)


def archive_topic(
    arguments: JournalArguments,
    stop: Stop,
    report: Say,
    spark: SparkSession | None = None,
    retry: Retry = PATIENT,
) -> Totals:
    """Archive as `journal` does, with errors raised and lines given to `report`.

    Args:
        arguments: the command's arguments.
        stop: ends it.
        report: gets the progress.
        spark: for tests; by default a session is started.
        retry: the retries of requests while no query runs.

    Raises:
        CutOff: a signal has come before it ran, or while it waited for its next start.
        PipelineError: what ended it, as one sentence.
    """
    interval_ms = _interval_ms(arguments)
    folder = TopicFolder(arguments.archive, arguments.topic)
    # `locked` would create the folder of a misspelled name.
    if arguments.compact and not folder.path.exists():
        raise UsageInvalid(f"{arguments.archive}: has no archive of topic {arguments.topic}")
    with folder.locked():
        if arguments.compact:
            report(f"{arguments.topic}: {compact(folder)} fewer files")
            return Totals()
        job = ArchiveJob(
            gateway=arguments.gateway,
            topic=arguments.topic,
            interval_ms=None if arguments.options.available_now else interval_ms,
            checkpoint=arguments.checkpoint or folder.path / "_checkpoint",
        )
        # Ask before Spark is started: a missing topic needs no Java to be refused.
        epoch = _epoch(arguments, folder, stop, retry)
        # The supervisor repeats a failed start, so this question need not be repeated by itself.
        ask_epoch = partial(_epoch, arguments, folder, stop, AT_ONCE)
        archiving = Archiving(folder, job, epoch, ask_epoch, report)
        _run(archiving, arguments, stop, report, spark)
        return archiving.totals


def _run(
    archiving: Archiving,
    arguments: JournalArguments,
    stop: Stop,
    report: Say,
    spark: SparkSession | None,
) -> None:
    """Start Spark and archive until the end."""
    options = arguments.options
    # The status is published over HTTP, which an archive that reads from Redis has no address for.
    gateways = [] if arguments.source.is_bus else [arguments.gateway]
    with ExitStack() as opened:
        sinks = opened.enter_context(status_sinks(options, gateways, progress_line, report))
        with stop.cutting_off():
            report(f"starting Spark on {options.master}")
            made = spark_session(options.master) if spark is None else nullcontext(spark)
            session = opened.enter_context(made)
        opened.enter_context(outliving_its_jvm(stop))
        stream = Supervisor(
            archiving.name,
            archiving,
            partial(archiving.start, session),
            restarts=options.goes_on,
            say=report,
            gate=StartGate(),
            mends=archiving.mends,
        )
        opened.enter_context(ending_in_order(archiving.stop, [stream], sinks))
        with stop.cutting_off():
            stream.start_first()
        watch([stream], sinks, stop, report)
    if stream.failure is not None:
        raise stream.failure


def _interval_ms(arguments: JournalArguments) -> int:
    if not TOPIC.fullmatch(arguments.topic):
        raise UsageInvalid(f"{arguments.topic[:100]!r} is not the name of a topic")
    try:
        return whole_ms(parse_interval(arguments.interval))
    except TextInvalid:
        expected = "--interval: expected 1ms to 1d, such as 10s"
        raise UsageInvalid(f"{expected}, not {arguments.interval!r}") from None


def _epoch(arguments: JournalArguments, folder: TopicFolder, stop: Stop, retry: Retry) -> str:
    """Return the topic's epoch at the gateway, and keep its shape; call it while no query runs.

    Raises:
        CutOff: a signal has come; a gateway that hangs does not delay the end.
    """
    with stop.cutting_off(), open_journal(arguments.source, retry) as journal:
        found = journal.ends()
        definition = journal.definition()
    # With each epoch: a topic that was recreated may have another key.
    folder.write_shape(TopicShape(definition.get("key") or [], definition.get("type", "json")))
    if found.epoch is not None:
        return found.epoch
    if found.last is None:
        raise GatewayRefused(f"the gateway does not give the epoch of topic {arguments.topic}")
    return split_bookmark(found.last)[0]
