"""Runs the streams of a definition file, and of topics that say so, until told to stop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.definitions.declared import streams_of
from pipeline.definitions.stream import StreamDefinition, read_definitions
from pipeline.errors import PipelineError, StreamFailed
from pipeline.gateway import DEFAULT_GATEWAY
from pipeline.operations.condition import Condition
from pipeline.operations.lines import PROGRESS_EVERY_S, progress_line
from pipeline.operations.metrics import Board, serving_metrics
from pipeline.operations.reporter import Reporter, reporting
from pipeline.operations.roster import Fillable, Roster
from pipeline.operations.stop import STOPPING, CutOff, Stop
from pipeline.operations.topiclist import TopicList
from pipeline.operations.watch import Onlooker, tell, watch
from pipeline.patience import PATIENCE_S
from pipeline.session import spark_session
from pipeline.sources.source import jars_of
from pipeline.streams.crew import Crew

DEFAULT_MASTER = "local[*]"
BOARD_EVERY_S = 1.0

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
        return (given or [DEFAULT_GATEWAY])[0].rstrip("/")


def run(path: Path | None, manner: Manner = Manner(), topics: Topics | None = None) -> int:
    """Run the streams of a file, of topics, or of both; returns the exit code of the command line.

    0: stopped by SIGTERM, or with `available_now` when all is read; 130: by SIGINT; 1, 2, 3 and
    78 as for every command, after one line on standard error.

    Raises:
        CutOff: a signal has come before the streams ran.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_streams(path, topics, manner, stop, _say)
    except PipelineError as error:
        sys.stderr.write(f"tidegate: {error}\n")
        return error.exit_code
    return stop.exit_code


def run_streams(
    path: Path | None, topics: Topics | None, manner: Manner, stop: Stop, report: Report
) -> None:
    """As `run`, with errors raised and lines given to `report`.

    Raises:
        CutOff: a signal has come before they ran.
        PipelineError: what ended the first stream that failed for good, as one sentence.
    """
    definitions = [] if path is None else read_definitions(path)
    crew = Crew(available_now=manner.available_now, restarts=manner.restarts, say=report)
    for definition in definitions:
        crew.take(definition)
    gateways = {definition.gateway for definition in definitions}
    if topics is not None:
        gateways.add(topics.address(definitions))
    with ExitStack() as held:
        onlookers = _onlookers(held, manner, gateways, crew, report)
        held.callback(crew.close)
        with stop.cutting_off():
            crew.hold()
            report(f"starting Spark on {manner.master}")
            crew.spark = held.enter_context(spark_session(manner.master, jars_of(definitions)))
        held.enter_context(_outliving_its_jvm(stop))
        held.enter_context(_ending_in_order(crew, onlookers))
        with stop.cutting_off():
            crew.begin()
            roster = None if topics is None else _roster(topics, definitions, crew, report)
            if roster is not None:
                roster.begin()
        renew = None if roster is None or manner.available_now else roster.look
        watch(crew.members, onlookers, stop, report, renew=renew)
        if stop.asked:
            report(STOPPING)
        elif manner.available_now:
            crew.end()
    failures = [each.failure for each in crew.members if each.failure is not None]
    if failures:
        raise failures[0]


@contextmanager
def _ending_in_order(crew: Crew, onlookers: Sequence[Onlooker]) -> Iterator[None]:
    """Whatever ends the block, queries end between two batches, and it is told how they stand.

    Not where a signal has cut off the start: then nothing more can be asked of Spark.
    """
    is_cut_off = False
    try:
        yield
    except CutOff:
        is_cut_off = True
        raise
    finally:
        if not is_cut_off:
            crew.stop()
            tell(crew.members, onlookers)


def _roster(
    topics: Topics, definitions: list[StreamDefinition], crew: Crew, report: Report
) -> Roster:
    """Who follows the gateway's list; the first look has patience, later ones come again."""
    gateway = topics.address(definitions)
    listed = TopicList(gateway)
    taken = {each.sink.topic or "" for each in definitions if each.gateway == gateway}
    patience = iter([PATIENCE_S])

    def fillable() -> Fillable:
        found = listed.read(next(patience, 0.0))
        return streams_of(found, gateway, topics.checkpoints, taken)

    return Roster(fillable, crew, report, restarts=crew.restarts)


def _onlookers(
    held: ExitStack, manner: Manner, gateways: set[str], crew: Crew, report: Report
) -> list[Onlooker]:
    """Who is told how streams stand: the terminal, the gateway, a scraper where one is wanted."""

    def say(conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            report(progress_line(condition, crew.letters[condition.name]))

    onlookers = [Onlooker(say, PROGRESS_EVERY_S)]
    for gateway in sorted(gateways):
        reporter = Reporter(gateway, report)
        held.enter_context(reporting(reporter))
        onlookers.append(Onlooker(reporter.tell, PROGRESS_EVERY_S))
    if manner.metrics_port is not None:
        board = Board()
        held.enter_context(serving_metrics(board, manner.metrics_port, manner.metrics_host))
        onlookers.append(Onlooker(board.show, BOARD_EVERY_S))
    return onlookers


@contextmanager
def _outliving_its_jvm(stop: Stop) -> Iterator[None]:
    """Java may end before us, and the streams with it."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if not stop.asked:
            raise StreamFailed("Spark's Java process has ended, or refuses to go on") from error


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
