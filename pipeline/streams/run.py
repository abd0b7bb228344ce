"""Runs the streams of a definition file, and of topics that say `engine: spark`, until stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidegate.pipeline.connection import AT_ONCE, default_gateway, reported_retry
from tidegate.pipeline.definitions.spark_topics import streams_of
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.operations.shutdown import Stop, print_line, until_stopped
from tidegate.pipeline.operations.status import StreamStatus, progress_line
from tidegate.pipeline.operations.supervisor import DEFAULT_OPTIONS, RunOptions, Say
from tidegate.pipeline.operations.watch import (
    ending_in_order,
    outliving_its_jvm,
    status_sinks,
    watch,
)
from tidegate.pipeline.sources.source import jars_of
from tidegate.pipeline.spark.session import spark_session
from tidegate.pipeline.streams.runner import StreamRunner
from tidegate.pipeline.streams.topic_watcher import Fillable, SparkTopicWatcher, TopicList


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics that say `engine: spark`, each filled by its own stream.

    They are those of `gateway`; None means the gateway of the file that is run too, or the
    default. `checkpoints` is a folder that driver and executors share.
    """

    gateway: str | None
    checkpoints: Path

    def address(self, definitions: Sequence[StreamDefinition]) -> str:
        """Return the gateway's address; all streams of a file have one gateway."""
        given = [self.gateway] if self.gateway else [each.gateway for each in definitions]
        return (given or [default_gateway()])[0].rstrip("/")


def run(
    path: Path | None,
    options: RunOptions = DEFAULT_OPTIONS,
    topics: Topics | None = None,
    gateway: str | None = None,
) -> int:
    """Run the streams of a file, of topics, or of both; return the exit code, as `until_stopped`.

    With `available_now` they end when all is read. `gateway` overrides the one that the file names.

    Raises:
        CutOff: a signal has come before the streams ran.
    """
    return until_stopped(lambda stop: run_streams(path, topics, options, stop, print_line, gateway))


def run_streams(
    path: Path | None,
    topics: Topics | None,
    options: RunOptions,
    stop: Stop,
    report: Say,
    gateway: str | None = None,
) -> None:
    """Run streams as `run` does, with errors raised and lines given to `report`.

    Raises:
        CutOff: a signal has come before the streams ran.
        PipelineError: what ended the first stream that failed for good, as one sentence.
    """
    definitions = [] if path is None else read_definitions(path, gateway)
    runner = StreamRunner(options, report)
    for definition in definitions:
        runner.add(definition)
    # Each gateway that a stream writes to shows the stream's state.
    gateways = {definition.gateway for definition in definitions}
    if topics is not None:
        gateways.add(topics.address(definitions))

    def line(now: StreamStatus) -> str:
        return progress_line(now, runner.dead_letters[now.name])

    with ExitStack() as opened:
        sinks = opened.enter_context(status_sinks(options, gateways, line, report))
        opened.callback(runner.close)
        with stop.cutting_off():
            # Before Spark: a checkpoint that another process uses needs no Java to be refused.
            runner.hold()
            report(f"starting Spark on {options.master}")
            runner.spark = opened.enter_context(spark_session(options.master, jars_of(definitions)))
        opened.enter_context(outliving_its_jvm(stop))
        opened.enter_context(ending_in_order(runner.stop, runner.members, sinks))
        with stop.cutting_off():
            runner.begin()
            watcher = None if topics is None else _watcher(topics, definitions, runner, report)
            if watcher is not None:
                watcher.begin()
        # With `available_now` only the topics present at the start are filled.
        renew = None if watcher is None or options.available_now else watcher.poll
        watch(runner.members, sinks, stop, report, renew=renew)
        if options.available_now and not stop.asked:
            runner.end()
    failures = [each.failure for each in runner.members if each.failure is not None]
    if failures:
        raise failures[0]


def _watcher(
    topics: Topics, definitions: list[StreamDefinition], runner: StreamRunner, report: Say
) -> SparkTopicWatcher:
    """Return the watcher of a gateway; only its first poll retries, as later ones repeat anyway."""
    gateway = topics.address(definitions)
    listed = TopicList(gateway)
    taken = {each.sink.topic or "" for each in definitions if each.gateway == gateway}
    retries = iter([reported_retry(gateway, report, time.sleep)])

    def fillable() -> Fillable:
        found = listed.read(next(retries, AT_ONCE))
        return streams_of(found, gateway, topics.checkpoints, taken)

    return SparkTopicWatcher(fillable, runner, report, restarts=runner.restarts)
