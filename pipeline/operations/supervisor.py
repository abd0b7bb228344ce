"""One stream through its failures: what a new start may mend is started again, later each time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidegate.clients.retry import doubled_s
from tidegate.pipeline.errors import PipelineError, WorkerLate, from_spark
from tidegate.pipeline.operations.status import (
    Pace,
    State,
    StreamStatus,
    Totals,
    finds_nothing,
    is_initializing,
    pace_of,
    restart_line,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


# Whose turn it is to start: one stream at a time.
#
# Spark gives the Python that plans a stream ten seconds to come up, and no setting changes that:
# many
# that start at one moment keep one another from it, and would at each new start.


TURN_SECONDS_MAX = 25.0  # a stream may have two such Pythons, one after the other


class StartGate:
    """Taken with a start, free once that query reads, has ended, or took longer than Spark waits.

    Args:
        monotonic: seconds; for tests.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._starting: StreamingQuery | None = None
        self._until_s = 0.0

    def take(self, query: StreamingQuery | None) -> None:
        """This one was started."""
        self._starting, self._until_s = query, self._monotonic() + TURN_SECONDS_MAX

    def is_free(self) -> bool:
        """Whether another may be started."""
        query = self._starting
        if query is None or self._monotonic() >= self._until_s:
            return True
        return not (query.isActive and is_initializing(query.status))


Say = Callable[[str], None]

LATE_STARTS_MAX = 5

PAUSE_FIRST_S = 1.0
PAUSE_MOST_S = 60.0


class Watched(Protocol):
    """A stream, as far as it is looked at from outside."""

    @property
    def totals(self) -> Totals:
        """What it did so far."""

    @property
    def held_keys(self) -> int | None:
        """How many keys wait for the end of their interval; None where none can."""

    @property
    def merger_failures(self) -> int | None:
        """How often its merger has failed since its checkpoint began; None where it has none."""

    @property
    def working_s(self) -> float | None:
        """For how many seconds a batch has been worked on; None between two of them."""

    @property
    def query(self) -> StreamingQuery | None:
        """That of its newest start."""


class Supervisor:
    """A stream and how it stands.

    Args:
        name: of the stream.
        stream: not started.
        start: starts it from its checkpoint, any number of times.
        restarts: whether it is started again.
        say: told why it stands still.
        turn: whose turn it is to start, for all who start on one Spark.
        mends: whether a new start mends what otherwise would not pass.
        monotonic: seconds; for tests.
        chance: from 0 to 1, how pauses are spread; for tests. By default another for each name.

    Attributes:
        failure: why it has ended for good, if it has failed.
    """

    def __init__(
        self,
        name: str,
        stream: Watched,
        start: Callable[[], None],
        *,
        restarts: bool,
        say: Say,
        turn: StartGate,
        mends: Callable[[PipelineError], bool] = lambda _: False,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.stream = stream
        self.failure: PipelineError | None = None
        self._start = start
        self._may_restart = restarts
        self._say = say
        self._turn = turn
        self._mends = mends
        self._monotonic = monotonic
        self._chance = chance or random.Random(name).random
        self._state = State.STARTING
        self._pace = Pace()
        self._due_s = 0.0
        self._restarts = 0
        self._failures = 0
        self._batches_at_failure = 0
        self._error = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self._state in (State.ENDED, State.FAILED)

    def begin(self) -> None:
        """Start it for the first time.

        Raises:
            PipelineError: it does not start. Nobody waits for what never ran, but for Spark itself.
        """
        try:
            self._begin()
        except WorkerLate as error:
            self._fail(error)

    def look(self) -> None:
        """Notice its end or its failure; start it if that is due, and its turn."""
        match self._state:
            case State.RUNNING:
                self._look_at_query()
            case State.STARTING if self._turn.is_free():
                self._attempt()
            case State.WAITING if self._monotonic() >= self._due_s and self._turn.is_free():
                self._restarts += 1
                self._attempt()

    def end(self) -> None:
        """Its query was stopped because the end was asked for."""
        if self.failure is None:
            self._state = State.ENDED

    def condition(self) -> StreamStatus:
        """How it stands now."""
        done, query = self.stream.totals, self.stream.query
        self._pace = pace_of(query.lastProgress if query is not None else None, self._pace)
        return StreamStatus(
            name=self.name,
            state=self._state,
            pace=self._pace,
            batches=done.batches,
            messages=done.messages,
            published=done.published,
            repeated=done.repeated,
            refused=done.refused,
            held=self.stream.held_keys,
            merger_failures=self.stream.merger_failures,
            working_s=self.stream.working_s,
            finds_nothing=query is not None and finds_nothing(query.status),
            restarts=self._restarts,
            error=self._error,
            at_s=time.time(),
        )

    def _attempt(self) -> None:
        """Start it; a start that fails is a failure like any."""
        try:
            self._begin()
        except PipelineError as error:
            self._fail(error)

    def _begin(self) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self._start()
        except (PySparkException, Py4JJavaError) as error:
            raise from_spark(self.name, str(error)) from error
        self._turn.take(self.stream.query)
        self._state = State.RUNNING

    def _look_at_query(self) -> None:
        query = self.stream.query
        assert query is not None, "it runs"
        # Asked in this order: one that fails in between is still active, or has its reason.
        is_active, failure = query.isActive, query.exception()
        if failure is not None:
            self._fail(from_spark(self.name, str(failure)))
        elif not is_active:
            self._state = State.ENDED

    def _fail(self, error: PipelineError) -> None:
        self._error = str(error)
        if not (self._may_restart and self._may_go_well(error)) and not self._was_too_busy(error):
            self._state, self.failure = State.FAILED, error
            return
        batches = self.stream.totals.batches
        if batches > self._batches_at_failure:
            self._failures = 0
        self._batches_at_failure = batches
        self._failures += 1
        # Streams that have failed at one moment are not started again at another.
        pause = doubled_s(self._failures, PAUSE_FIRST_S, PAUSE_MOST_S) * (1 + self._chance() / 2)
        self._state, self._due_s = State.WAITING, self._monotonic() + pause
        self._say(restart_line(str(error), pause))

    def _may_go_well(self, error: PipelineError) -> bool:
        return error.may_pass or self._mends(error)

    def _was_too_busy(self, error: PipelineError) -> bool:
        """Then it is tried a few times more in any case: of the stream nothing went wrong."""
        return isinstance(error, WorkerLate) and self._failures < LATE_STARTS_MAX
