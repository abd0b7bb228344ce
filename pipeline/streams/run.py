"""Runs the streams of a definition file, and of topics that say `engine: spark`, until stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.clients.answers import TopicsPage
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry
from tidegate.pipeline.connection import AT_ONCE, default_gateway, gateway_at, reported_retry
from tidegate.pipeline.definitions.spark_topics import streams_of
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.operations.shutdown import STOPPING, Stop, complain, say
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


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics that say `engine: spark`, each filled by a stream of its own.

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
    """Run the streams of a file, of topics, or of both; return the exit code of the command line.

    `gateway` goes before the one that the file names.

    0: stopped by SIGTERM, or with `available_now` when all is read; 130: by SIGINT; 1, 2, 3 and
    78 as for every command, after one line on standard error.

    Raises:
        CutOff: a signal has come before the streams ran.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_streams(path, topics, options, stop, say, gateway)
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    return stop.exit_code


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
        # A run that ends by itself takes the topics that there were at its start.
        renew = None if watcher is None or options.available_now else watcher.look
        watch(runner.members, sinks, stop, report, renew=renew)
        if stop.asked:
            report(STOPPING)
        elif options.available_now:
            runner.end()
    failures = [each.failure for each in runner.members if each.failure is not None]
    if failures:
        raise failures[0]


def _watcher(
    topics: Topics, definitions: list[StreamDefinition], runner: StreamRunner, report: Say
) -> SparkTopicWatcher:
    """Return the watcher of a gateway; its first look retries, later ones are repeated anyway."""
    gateway = topics.address(definitions)
    listed = TopicList(gateway)
    taken = {each.sink.topic or "" for each in definitions if each.gateway == gateway}
    retries = iter([reported_retry(gateway, report, time.sleep)])

    def fillable() -> Fillable:
        found = listed.read(next(retries, AT_ONCE))
        return streams_of(found, gateway, topics.checkpoints, taken)

    return SparkTopicWatcher(fillable, runner, report, restarts=runner.restarts)


# --- the topics of a gateway that say `engine: spark`, as they come and go

# An unchanged list is a 304 for each page, so looking often is cheap for both.
LOOK_EVERY_S = 2.0
FIRST_PAGE = "/v1/topics?limit=1000"

Fillable = tuple[Sequence[StreamDefinition], Sequence[str]]
"""A stream for each topic to fill; and one sentence for each topic that cannot be filled."""


class SparkTopicWatcher:
    """Starts and stops streams as topics come and go.

    Args:
        topics: returns what is to be filled; raises PipelineError.
        runner: starts and stops the streams.
        say: gets what nothing else reports.
        restarts: whether a stream that has lost its source begins again from the records.
        monotonic: seconds; for tests.
    """

    def __init__(
        self,
        topics: Callable[[], Fillable],
        runner: StreamRunner,
        say: Say,
        *,
        restarts: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._runner = runner
        self._say = say
        self._restarts = restarts
        self._monotonic = monotonic
        self._running: dict[str, StreamDefinition] = {}
        self._due_s = 0.0
        self._said = ""
        self._unfit: Sequence[str] = ()

    def begin(self) -> None:
        """Start the streams of the topics that there are.

        Raises:
            PipelineError: the gateway does not list its topics.
        """
        self._due_s = self._monotonic() + LOOK_EVERY_S
        self._follow(self._wanted())

    def look(self) -> None:
        """Every two seconds start streams of new topics and stop those of topics that are gone.

        While the gateway does not answer, what runs goes on.
        """
        if self._monotonic() < self._due_s:
            return
        try:
            wanted = self._wanted()
        except PipelineError as error:
            self._say_once(f"cannot list the topics; running streams go on: {error}")
        else:
            self._follow(wanted)
        self._due_s = self._monotonic() + LOOK_EVERY_S

    def _wanted(self) -> dict[str, StreamDefinition]:
        streams, unfit = self._topics()
        # Once for each reason: the list is read every two seconds.
        for reason in unfit:
            if reason not in self._unfit:
                self._say(reason)
        self._unfit = unfit
        return {stream.name: stream for stream in streams}

    def _follow(self, wanted: dict[str, StreamDefinition]) -> None:
        lost = self._runner.lost() if self._restarts else ()
        for name, running in list(self._running.items()):
            new = wanted.get(name)
            if new != running or name in lost:
                # The checkpoint's path names epochs and shape: an equal path may be continued.
                continues = new is not None and new.checkpoint == running.checkpoint
                del self._running[name]
                self._runner.leave(name, forget=not continues or name in lost)
        for name, definition in wanted.items():
            if name not in self._running:
                self._runner.join(definition)
                self._running[name] = definition
        self._say_once("" if wanted else "no topic says engine: spark; waiting for one")

    def _say_once(self, line: str) -> None:
        """Print a line, unless it was the last one."""
        if line and line != self._said:
            self._say(line)
        self._said = line


class TopicList:
    """Reads the list of topics page by page; an unchanged page is answered by its entity tag."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pages: dict[str, TopicsPage] = {}

    def read(self, retry: Retry) -> list[dict[str, Any]]:
        """Return all topics: current definitions, figures as of each page's last change.

        Raises:
            PipelineError: the gateway does not answer, or the answer is no list.
        """
        topics: list[dict[str, Any]] = []
        pages: dict[str, TopicsPage] = {}
        at: str | None = FIRST_PAGE
        with gateway_at(self._address, retry) as gateway:
            while at is not None:
                page = self._page(gateway, at)
                pages[at] = page
                topics += page.topics
                at = page.following
        self._pages = pages
        return topics

    def _page(self, gateway: Gateway, at: str) -> TopicsPage:
        known = self._pages.get(at)
        page = gateway.topics_page(at, known.etag if known else "") or known
        assert page is not None, "without an entity tag there is always a page"
        return page
