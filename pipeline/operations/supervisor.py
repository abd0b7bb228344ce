"""Restarts one stream, after a pause, when it fails in a way that a restart may fix."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.clients.retry import doubled_s
from tidegate.pipeline.errors import PipelineError, WorkerLate
from tidegate.pipeline.operations.status import Pace, State, StreamStatus, Totals, restart_line

Say = Callable[[str], None]
"""Prints one line."""

DEFAULT_MASTER = "local[*]"
LOCALHOST = "127.0.0.1"
START_SECONDS_MAX = 25.0  # a start may need two Pythons, one after the other, of ten seconds each
LATE_STARTS_MAX = 5
PAUSE_FIRST_S = 1.0
PAUSE_MOST_S = 60.0  # so that a stream is back soon after an outage of whatever length


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How streams are run.

    `master` is Spark's. With `available_now` streams end when all that is there was read;
    `restarts` says whether a stream that failed is started again. Without a `metrics_port` there
    are no metrics.
    """

    master: str = DEFAULT_MASTER
    available_now: bool = False
    restarts: bool = True
    metrics_port: int | None = None
    metrics_host: str = LOCALHOST

    @property
    def goes_on(self) -> bool:
        """True if a stream that failed is started again; a run that ends by itself does not."""
        return self.restarts and not self.available_now


DEFAULT_OPTIONS = RunOptions()


class StreamRun(Protocol):
    """One run of a stream, from a start to its end: a query of Spark, or a thread."""

    @property
    def is_active(self) -> bool:
        """True until the run has ended or failed."""

    @property
    def is_starting(self) -> bool:
        """True while the run has not read its source yet."""

    @property
    def finds_nothing(self) -> bool:
        """True if there was nothing to read at the last attempt."""

    @property
    def failure(self) -> PipelineError | None:
        """Why the run has ended, if it has failed."""

    def pace(self, before: Pace) -> Pace:
        """Return the pace of the newest batch; `before` if there was none since."""


class StartGate:
    """Lets one stream start at a time.

    Spark gives the Python that plans a stream ten seconds to start, and no setting changes that.
    Many that start at one moment slow one another down, and would again at each restart.

    Args:
        monotonic: seconds; for tests.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._starting: StreamRun | None = None
        self._until_s = 0.0

    def close_for(self, run: StreamRun | None) -> None:
        """Close the gate until this run reads, has ended, or took too long; None opens it."""
        self._starting, self._until_s = run, self._monotonic() + START_SECONDS_MAX

    def is_free(self) -> bool:
        """Return whether another stream may start."""
        run = self._starting
        if run is None or self._monotonic() >= self._until_s:
            return True
        return not (run.is_active and run.is_starting)


class SupervisedStream(Protocol):
    """A stream as its supervisor sees it: of a definition, of a source, or archiving a topic."""

    @property
    def totals(self) -> Totals:
        """Counts since the first start."""

    @property
    def held_keys(self) -> int | None:
        """How many keys wait for the end of their interval; None where none can."""

    @property
    def merger_failures(self) -> int | None:
        """How often its merger has failed since its checkpoint began; None where it has none."""

    @property
    def working_s(self) -> float | None:
        """Seconds since the current batch began; None between two batches."""

    @property
    def run(self) -> StreamRun | None:
        """The run since the newest start."""


class Supervisor:
    """Starts one stream, and restarts it after failures that a restart may fix.

    Args:
        name: the stream's name.
        stream: not started yet.
        start: starts it from its checkpoint, any number of times.
        restarts: whether it is restarted after a failure.
        say: gets the reason of each pause.
        gate: shared by all streams of one Spark.
        mends: whether a restart fixes an error that would be final otherwise.
        monotonic: seconds; for tests.
        chance: returns the jitter of pauses, 0 to 1; for tests. The name seeds the default.

    Attributes:
        failure: why the stream has ended for good, if it has failed.
    """

    def __init__(
        self,
        name: str,
        stream: SupervisedStream,
        start: Callable[[], None],
        *,
        restarts: bool,
        say: Say,
        gate: StartGate,
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
        self._gate = gate
        self._mends = mends
        self._monotonic = monotonic
        # Seeded by the name: streams of one command pause differently, and a test can repeat it.
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
        """True if the stream has ended or failed for good."""
        return self._state in (State.ENDED, State.FAILED)

    def start_first(self) -> None:
        """Start the stream for the first time.

        A start is retried if a Python worker of Spark was late: the stream is not at fault.

        Raises:
            PipelineError: it does not start.
        """
        try:
            self._launch()
        except WorkerLate as error:
            self._fail(error)

    def poll(self) -> None:
        """Check for the end or a failure; start the stream if that is due and the gate is free."""
        match self._state:
            case State.RUNNING:
                self._check_run()
            case State.STARTING if self._gate.is_free():
                self._try_start()
            case State.WAITING if self._monotonic() >= self._due_s and self._gate.is_free():
                self._restarts += 1
                self._try_start()

    def end(self) -> None:
        """Note that the run was stopped on request."""
        if self.failure is None:
            self._state = State.ENDED

    def status(self) -> StreamStatus:
        """Return the current status; remember the pace of the newest batch for later calls."""
        totals, run = self.stream.totals, self.stream.run
        if run is not None:
            self._pace = run.pace(self._pace)
        return StreamStatus(
            name=self.name,
            state=self._state,
            pace=self._pace,
            totals=totals,
            held=self.stream.held_keys,
            merger_failures=self.stream.merger_failures,
            working_s=self.stream.working_s,
            finds_nothing=run is not None and run.finds_nothing,
            restarts=self._restarts,
            error=self._error,
            at_s=time.time(),
        )

    def _try_start(self) -> None:
        """Start the stream; treat a start that fails like any failure."""
        try:
            self._launch()
        except PipelineError as error:
            self._fail(error)

    def _launch(self) -> None:
        """Start the stream; then close the gate for its run.

        Raises:
            PipelineError: it does not start.
        """
        self._start()
        self._gate.close_for(self.stream.run)
        self._state = State.RUNNING

    def _check_run(self) -> None:
        run = self.stream.run
        assert run is not None, "it runs"
        # In this order: a run that fails between the two calls is still active or has its reason.
        is_active, failure = run.is_active, run.failure
        if failure is not None:
            self._fail(failure)
        elif not is_active:
            self._state = State.ENDED

    def _fail(self, error: PipelineError) -> None:
        self._error = str(error)
        can_pass = error.may_pass or self._mends(error)
        retries = (self._may_restart and can_pass) or self._was_too_busy(error)
        if not retries:
            self._state, self.failure = State.FAILED, error
            return
        batches = self.stream.totals.batches
        # A finished batch proves that the start worked: begin with short pauses again.
        if batches > self._batches_at_failure:
            self._failures = 0
        self._batches_at_failure = batches
        self._failures += 1
        # With jitter, streams that failed at one moment do not all start again at one moment.
        pause = doubled_s(self._failures, PAUSE_FIRST_S, PAUSE_MOST_S) * (1 + self._chance() / 2)
        self._state, self._due_s = State.WAITING, self._monotonic() + pause
        self._say(restart_line(str(error), pause))

    def _was_too_busy(self, error: PipelineError) -> bool:
        """Return whether only the machine was too slow; allow a few more attempts then."""
        return isinstance(error, WorkerLate) and self._failures < LATE_STARTS_MAX
