"""`tidegate pipeline journal TOPIC --to DIR`: a topic's journal, kept as Parquet for good."""

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
from tidegate.pipeline.archive.folder import TopicFolder, compact
from tidegate.pipeline.archive.progress import told_retry
from tidegate.pipeline.connection import AT_ONCE, PATIENT
from tidegate.pipeline.definitions.terms import TOPIC
from tidegate.pipeline.errors import ArchiveUnusable, GatewayRefused, PipelineError, UsageInvalid
from tidegate.pipeline.format.journal import open_journal
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.operations.run_options import RunOptions
from tidegate.pipeline.operations.shutdown import (
    STOPPING,
    Stop,
    complain,
    ending_in_order,
    outliving_its_jvm,
    say,
)
from tidegate.pipeline.operations.status import Totals, progress_line
from tidegate.pipeline.operations.supervisor import Say, StartGate, Supervisor
from tidegate.pipeline.operations.watch import onlookers, watch
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
    manner: RunOptions

    @property
    def source(self) -> ReadOptions:
        """Where the journal is read."""
        return ReadOptions(self.gateway, self.topic)


def journal(wish: JournalArguments) -> int:
    """Archive until told to stop, or all is archived; returns the exit code of the command line.

    0: stopped by SIGTERM, with `available_now` when all is archived, with `compact` when files
    are put together; 130: by SIGINT; else 1, 2, 3 or 78 after one line on standard error.

    Raises:
        CutOff: a signal has come before it ran, or while it waited for its next start.
    """
    stop = Stop()
    try:
        with stop.listening():
            keep(wish, stop, say, retry=told_retry(stop, complain, wish.source.gateway))
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        complain(f"{wish.archive}: {error.strerror or error}")
        return ArchiveUnusable.exit_code
    return stop.exit_code


def keep(
    wish: JournalArguments,
    stop: Stop,
    report: Say,
    spark: SparkSession | None = None,
    retry: Retry = PATIENT,
) -> Totals:
    """As `journal`, with errors raised and lines given to `report`.

    Args:
        wish: what is asked for.
        stop: ends it.
        report: is told how far it is.
        spark: for tests; else one is started.
        retry: how a gateway that does not answer is asked again.

    Raises:
        CutOff: a signal has come before it ran, or while it waited for its next start.
        PipelineError: what ended it, as one sentence.
    """
    interval_ms = _interval_ms(wish)
    folder = TopicFolder(wish.archive, wish.topic)
    if wish.compact and not folder.path.exists():
        raise UsageInvalid(f"{wish.archive}: holds no archive of topic {wish.topic}")
    with folder.locked():
        if wish.compact:
            report(f"{wish.topic}: {compact(folder)} files fewer")
            return Totals()
        errand = ArchiveJob(
            gateway=wish.gateway,
            topic=wish.topic,
            interval_ms=None if wish.manner.available_now else interval_ms,
            checkpoint=wish.checkpoint or folder.path / "_checkpoint",
        )
        epoch = _epoch(wish, stop, retry)
        ask_epoch = partial(_epoch, wish, stop, AT_ONCE)
        archiving = Archiving(folder, errand, epoch, ask_epoch, report)
        _run(archiving, wish, stop, report, spark)
        return archiving.totals


def _run(
    archiving: Archiving,
    wish: JournalArguments,
    stop: Stop,
    report: Say,
    spark: SparkSession | None,
) -> None:
    """Start Spark and archive until the end."""
    manner = wish.manner
    gateways = [] if wish.source.is_bus else [wish.gateway]
    with ExitStack() as held:
        told = held.enter_context(onlookers(manner, gateways, progress_line, report))
        with stop.cutting_off():
            report(f"starting Spark on {manner.master}")
            made = spark_session(manner.master) if spark is None else nullcontext(spark)
            session = held.enter_context(made)
        held.enter_context(outliving_its_jvm(stop))
        stream = Supervisor(
            archiving.name,
            archiving,
            partial(archiving.start, session),
            restarts=manner.goes_on,
            say=report,
            turn=StartGate(),
            mends=archiving.mends,
        )
        held.enter_context(ending_in_order(archiving.stop, [stream], told))
        with stop.cutting_off():
            stream.begin()
        watch([stream], told, stop, report)
        if stop.asked:
            report(STOPPING)
    if stream.failure is not None:
        raise stream.failure


def _interval_ms(wish: JournalArguments) -> int:
    if not TOPIC.fullmatch(wish.topic):
        raise UsageInvalid(f"{wish.topic[:100]!r} is no name of a topic")
    try:
        return whole_ms(parse_interval(wish.interval))
    except TextInvalid:
        expected = "--interval: expected 1ms to 1d, such as 10s"
        raise UsageInvalid(f"{expected}, not {wish.interval!r}") from None


def _epoch(wish: JournalArguments, stop: Stop, retry: Retry) -> str:
    """The topic's epoch at the gateway, asked for while no query runs.

    Raises:
        CutOff: a signal has come; a gateway that hangs does not hold up the end.
    """
    with stop.cutting_off(), open_journal(wish.source, retry) as opened:
        found = opened.ends()
    if found.epoch is not None:
        return found.epoch
    if found.last is None:
        raise GatewayRefused(f"nobody tells the epoch of topic {wish.topic}")
    return split_bookmark(found.last)[0]
