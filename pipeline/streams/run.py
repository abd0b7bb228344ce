"""Runs the streams of a definition file until they are told to stop, or have read all."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pipeline.definitions.stream import read_definitions
from pipeline.errors import EXIT_DONE, EXIT_INTERRUPTED, PipelineError, StreamFailed, from_spark
from pipeline.session import open_session
from pipeline.streams.checkpoint import Checkpoint
from pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
PROGRESS_EVERY_S = 3.0
LOOK_EVERY_S = 0.1
LAST_BATCH_SECONDS_MAX = 4.0

Report = Callable[[str], None]


def run(path: Path, master: str = DEFAULT_MASTER, available_now: bool = False) -> int:
    """Run the file's streams; returns the exit code of the command line.

    0: stopped by SIGTERM, or with `available_now` when all is read; 130: by SIGINT; 1, 3 and
    78 as for every command, after one line on standard error.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_streams(path, master, available_now, stop, _say)
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


def run_streams(path: Path, master: str, available_now: bool, stop: Stop, report: Report) -> None:
    """As `run`, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended the streams, as one sentence.
    """
    streams = [Stream(definition) for definition in read_definitions(path)]
    with ExitStack() as held:
        checkpoints = [held.enter_context(Checkpoint(stream.definition)) for stream in streams]
        report(f"starting Spark on {master}")
        spark = open_session(master)
        held.callback(_close_session, spark)
        held.enter_context(_outliving_its_jvm(stop))
        stop.take_signals()
        try:
            for stream, checkpoint in zip(streams, checkpoints, strict=True):
                stream.start(spark, checkpoint, available_now=available_now)
                report(_started(stream))
            _watch(streams, stop, report)
        finally:
            _stop_queries(streams)
        for stream in streams:
            report(_progress(stream))


def _watch(streams: list[Stream], stop: Stop, report: Report) -> None:
    """Report now and then until all have ended, one has failed or the end is asked for."""
    next_report_at = time.monotonic() + PROGRESS_EVERY_S
    while not stop.asked:
        for stream in streams:
            _raise_failure(stream)
        if not any(stream.query and stream.query.isActive for stream in streams):
            return
        if time.monotonic() >= next_report_at:
            next_report_at += PROGRESS_EVERY_S
            for stream in streams:
                report(_progress(stream))
        stop.wait(LOOK_EVERY_S)


def _raise_failure(stream: Stream) -> None:
    failure = stream.query.exception() if stream.query else None
    if failure is not None:
        raise from_spark(stream.definition.name, str(failure)) from None


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
        f"to topic {definition.sink.topic} at {definition.gateway}"
    )


def _progress(stream: Stream) -> str:
    done = stream.totals
    line = (
        f"{stream.definition.name}: {done.batches:,} batches, {done.messages:,} messages in, "
        f"{done.published:,} out"
    )
    if done.repeated:
        line += f", {done.repeated:,} written by an earlier run"
    if done.refused:
        line += f", {done.refused:,} refused (see {stream.definition.dead_letters})"
    return line


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
