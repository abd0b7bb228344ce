"""`tidegate pipeline journal TOPIC --to DIR`: a topic's journal, kept as Parquet for good."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.archive.archiving import Archiving, Errand
from pipeline.archive.compaction import compact
from pipeline.archive.folder import TopicFolder
from pipeline.archive.progress import ToldWaiting
from pipeline.bookmark import split_bookmark
from pipeline.datasource.journal import open_journal
from pipeline.datasource.options import ReadOptions
from pipeline.definitions.duration import duration_ms
from pipeline.definitions.names import TOPIC
from pipeline.errors import (
    ArchiveUnusable,
    GatewayRefused,
    PipelineError,
    UsageInvalid,
)
from pipeline.operations.ending import ending_in_order, outliving_its_jvm
from pipeline.operations.lines import progress_line
from pipeline.operations.manner import Manner
from pipeline.operations.onlookers import onlookers
from pipeline.operations.stop import STOPPING, Stop
from pipeline.operations.supervised import Say, Supervised
from pipeline.operations.terminal import complain, say
from pipeline.operations.totals import Totals
from pipeline.operations.turn import Turn
from pipeline.operations.watch import watch
from pipeline.patience import AT_ONCE, IN_SILENCE, Waiting
from pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Wish:
    """The command's arguments as they are given."""

    topic: str
    archive: Path
    gateway: str
    checkpoint: Path | None
    interval: str
    compact: bool
    manner: Manner

    @property
    def source(self) -> ReadOptions:
        """Where the journal is read."""
        return ReadOptions(self.gateway, self.topic)


def journal(wish: Wish) -> int:
    """Archive until told to stop, or all is archived; returns the exit code of the command line.

    0: stopped by SIGTERM, with `available_now` when all is archived, with `compact` when files
    are put together; 130: by SIGINT; else 1, 2, 3 or 78 after one line on standard error.

    Raises:
        CutOff: a signal has come before it ran, or while it waited for its next start.
    """
    stop = Stop()
    try:
        with stop.listening():
            keep(wish, stop, say, waiting=ToldWaiting(stop, complain))
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        complain(f"{wish.archive}: {error.strerror or error}")
        return ArchiveUnusable.exit_code
    return stop.exit_code


def keep(
    wish: Wish,
    stop: Stop,
    report: Say,
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
        errand = Errand(
            gateway=wish.gateway,
            topic=wish.topic,
            interval_ms=None if wish.manner.available_now else interval_ms,
            checkpoint=wish.checkpoint or folder.path / "_checkpoint",
        )
        epoch = _epoch(wish, stop, waiting)
        ask_epoch = partial(_epoch, wish, stop, AT_ONCE)
        archiving = Archiving(folder, errand, epoch, ask_epoch, report)
        _run(archiving, wish, stop, report, spark)
        return archiving.totals


def _run(
    archiving: Archiving, wish: Wish, stop: Stop, report: Say, spark: SparkSession | None
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
        stream = Supervised(
            archiving.name,
            archiving,
            partial(archiving.start, session),
            restarts=manner.goes_on,
            say=report,
            turn=Turn(),
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


def _interval_ms(wish: Wish) -> int:
    interval_ms = duration_ms(wish.interval)
    if not TOPIC.fullmatch(wish.topic):
        raise UsageInvalid(f"{wish.topic[:100]!r} is no name of a topic")
    if interval_ms is None:
        raise UsageInvalid(f"--interval: expected 1ms to 1d, such as 10s, not {wish.interval!r}")
    return interval_ms


def _epoch(wish: Wish, stop: Stop, waiting: Waiting) -> str:
    """The topic's epoch at the gateway, asked for while no query runs.

    Raises:
        CutOff: a signal has come; a gateway that hangs does not hold up the end.
    """
    with stop.cutting_off(), open_journal(wish.source, waiting) as opened:
        found = opened.ends()
    if found.epoch is not None:
        return found.epoch
    if found.last is None:
        raise GatewayRefused(f"nobody tells the epoch of topic {wish.topic}")
    return split_bookmark(found.last)[0]
