"""Runs the streams of a definition file until they are told to stop, or have read all."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pipeline.definitions.stream import read_definitions
from pipeline.errors import EXIT_DONE, EXIT_INTERRUPTED, PipelineError, StreamFailed
from pipeline.operations.condition import Condition
from pipeline.operations.lines import progress_line
from pipeline.operations.metrics import Board, serving_metrics
from pipeline.operations.reporter import Reporter, reporting
from pipeline.operations.supervised import Supervised
from pipeline.operations.watch import Onlooker, tell, watch
from pipeline.session import open_session
from pipeline.sources.source import jars_of
from pipeline.streams.checkpoint import Checkpoint
from pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
PROGRESS_EVERY_S = 3.0
BOARD_EVERY_S = 1.0
LOOK_EVERY_S = 0.1
LAST_BATCH_SECONDS_MAX = 4.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Manner:
    """How streams are run.

    `master` is Spark's; with `available_now` they end when all that is there was read; `restarts`
    says whether one that failed is started again; metrics are told on `metrics_port` if there is
    one.
    """

    master: str = DEFAULT_MASTER
    available_now: bool = False
    restarts: bool = True
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"


def run(path: Path, manner: Manner = Manner()) -> int:
    """Run the file's streams; returns the exit code of the command line.

    0: stopped by SIGTERM, or with `available_now` when all is read; 130: by SIGINT; 1, 2, 3 and
    78 as for every command, after one line on standard error.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_streams(path, manner, stop, _say)
    except PipelineError as error:
        sys.stderr.write(f"tidegate: {error}\n")
        return error.exit_code
    return EXIT_INTERRUPTED if stop.interrupted else EXIT_DONE


class Stop:
    """Whether somebody asked for the end: SIGINT or SIGTERM, or a call of `ask`."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.interrupted = False

    @property
    def asked(self) -> bool:
        """Whether the streams should end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End the streams after the batch they are in."""
        self._asked.set()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when asked to stop."""
        self._asked.wait(seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take both signals while the block runs; only a main thread may."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.take_signals()
        before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for name, action in before.items():
                signal.signal(name, action)

    def take_signals(self) -> None:
        """Install our reaction, also over the one that Spark brings along."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_signal)
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = number == signal.SIGINT
        self._asked.set()


def run_streams(path: Path, manner: Manner, stop: Stop, report: Report) -> None:
    """As `run`, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended the first stream that failed for good, as one sentence.
    """
    definitions = read_definitions(path)
    streams = [Stream(definition) for definition in definitions]
    with ExitStack() as held:
        onlookers = _onlookers(held, manner, streams, report)
        checkpoints = [held.enter_context(Checkpoint(stream.definition)) for stream in streams]
        report(f"starting Spark on {manner.master}")
        spark = open_session(manner.master, jars_of(definitions))
        held.callback(_close_session, spark)
        held.enter_context(_outliving_its_jvm(stop))
        stop.take_signals()
        watched = [
            Supervised(
                stream.definition.name,
                stream,
                partial(stream.start, spark, checkpoint, available_now=manner.available_now),
                restarts=manner.restarts and not manner.available_now,
                say=report,
            )
            for stream, checkpoint in zip(streams, checkpoints, strict=True)
        ]
        try:
            for each, stream in zip(watched, streams, strict=True):
                each.begin()
                report(_started(stream))
            watch(watched, onlookers, stop, report)
            if manner.available_now and not stop.asked:
                for stream in streams:
                    stream.end()
        finally:
            _stop_queries(streams)
            for each in watched:
                each.end()
            tell(watched, onlookers)
    failures = [each.failure for each in watched if each.failure is not None]
    if failures:
        raise failures[0]


def _onlookers(
    held: ExitStack, manner: Manner, streams: list[Stream], report: Report
) -> list[Onlooker]:
    """Who is told how streams stand: the terminal, the gateway, a scraper where one is wanted."""
    letters = {stream.definition.name: stream.definition.dead_letters for stream in streams}

    def say(conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            report(progress_line(condition, letters[condition.name]))

    onlookers = [Onlooker(say, PROGRESS_EVERY_S)]
    for gateway in sorted({stream.definition.gateway for stream in streams}):
        reporter = Reporter(gateway, report)
        held.enter_context(reporting(reporter))
        onlookers.append(Onlooker(reporter.tell, PROGRESS_EVERY_S))
    if manner.metrics_port is not None:
        board = Board()
        held.enter_context(serving_metrics(board, manner.metrics_port, manner.metrics_host))
        onlookers.append(Onlooker(board.show, BOARD_EVERY_S))
    return onlookers


def _stop_queries(streams: list[Stream]) -> None:
    """Stop each query between two batches; a batch that does not end is replayed next time."""
    give_up_at = time.monotonic() + LAST_BATCH_SECONDS_MAX
    for stream in streams:
        query = stream.query
        if query is None:
            continue
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up_at:
            time.sleep(LOOK_EVERY_S / 2)
        query.stop()


@contextmanager
def _outliving_its_jvm(stop: Stop) -> Iterator[None]:
    """A signal to the whole process group ends the JVM as well, and the streams with it."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if not stop.asked:
            raise StreamFailed("Spark's Java process has ended, or refuses to go on") from error


def _close_session(spark: SparkSession) -> None:
    """Close it, if its JVM is still there to be told."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()


def _started(stream: Stream) -> str:
    definition = stream.definition
    return (
        f"{definition.name}: newest of {definition.key} every {definition.interval_text} "
        f"to {definition.sink.place}"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
