"""Runs the streams of a definition file, and of topics that say so, until told to stop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidegate.pipeline.connection import AT_ONCE, PATIENT, default_gateway
from tidegate.pipeline.definitions.spark_topics import streams_of
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.operations.run_options import ONWARD, RunOptions
from tidegate.pipeline.operations.shutdown import (
    STOPPING,
    Stop,
    complain,
    ending_in_order,
    outliving_its_jvm,
    say,
)
from tidegate.pipeline.operations.status import StreamStatus, progress_line
from tidegate.pipeline.operations.supervisor import Say
from tidegate.pipeline.operations.topic_watcher import Fillable, SparkTopicWatcher, TopicList
from tidegate.pipeline.operations.watch import onlookers, watch
from tidegate.pipeline.sources.source import jars_of
from tidegate.pipeline.spark.session import spark_session
from tidegate.pipeline.streams.runner import StreamRunner


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics that say `engine: spark`, each filled by a stream of its own.

    They are those of a `gateway`, without one of that of the file that is run too, or the default;
    `checkpoints` is a folder that driver and executors share.
    """

    gateway: str | None
    checkpoints: Path

    def address(self, definitions: Sequence[StreamDefinition]) -> str:
        """Of the gateway; the streams of a file have one in common."""
        given = [self.gateway] if self.gateway else [each.gateway for each in definitions]
        return (given or [default_gateway()])[0].rstrip("/")


def run(path: Path | None, manner: RunOptions = ONWARD, topics: Topics | None = None) -> int:
    """Run the streams of a file, of topics, or of both; returns the exit code of the command line.

    0: stopped by SIGTERM, or with `available_now` when all is read; 130: by SIGINT; 1, 2, 3 and
    78 as for every command, after one line on standard error.

    Raises:
        CutOff: a signal has come before the streams ran.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_streams(path, topics, manner, stop, say)
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    return stop.exit_code


def run_streams(
    path: Path | None, topics: Topics | None, manner: RunOptions, stop: Stop, report: Say
) -> None:
    """As `run`, with errors raised and lines given to `report`.

    Raises:
        CutOff: a signal has come before they ran.
        PipelineError: what ended the first stream that failed for good, as one sentence.
    """
    definitions = [] if path is None else read_definitions(path)
    crew = StreamRunner(manner, report)
    for definition in definitions:
        crew.take(definition)
    gateways = {definition.gateway for definition in definitions}
    if topics is not None:
        gateways.add(topics.address(definitions))

    def line(now: StreamStatus) -> str:
        return progress_line(now, crew.letters[now.name])

    with ExitStack() as held:
        told = held.enter_context(onlookers(manner, gateways, line, report))
        held.callback(crew.close)
        with stop.cutting_off():
            crew.hold()
            report(f"starting Spark on {manner.master}")
            crew.spark = held.enter_context(spark_session(manner.master, jars_of(definitions)))
        held.enter_context(outliving_its_jvm(stop))
        held.enter_context(ending_in_order(crew.stop, crew.members, told))
        with stop.cutting_off():
            crew.begin()
            roster = None if topics is None else _roster(topics, definitions, crew, report)
            if roster is not None:
                roster.begin()
        renew = None if roster is None or manner.available_now else roster.look
        watch(crew.members, told, stop, report, renew=renew)
        if stop.asked:
            report(STOPPING)
        elif manner.available_now:
            crew.end()
    failures = [each.failure for each in crew.members if each.failure is not None]
    if failures:
        raise failures[0]


def _roster(
    topics: Topics, definitions: list[StreamDefinition], crew: StreamRunner, report: Say
) -> SparkTopicWatcher:
    """Who follows the gateway's list; the first look has patience, later ones come again."""
    gateway = topics.address(definitions)
    listed = TopicList(gateway)
    taken = {each.sink.topic or "" for each in definitions if each.gateway == gateway}
    retries = iter([PATIENT])

    def fillable() -> Fillable:
        found = listed.read(next(retries, AT_ONCE))
        return streams_of(found, gateway, topics.checkpoints, taken)

    return SparkTopicWatcher(fillable, crew, report, restarts=crew.restarts)
