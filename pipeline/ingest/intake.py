"""One source in a thread: read a batch, publish it, acknowledge it."""

from __future__ import annotations

import threading
import time
from contextlib import closing

from tidegate.pipeline.connection import gateway_at, reported_retry
from tidegate.pipeline.errors import PipelineError, StreamFailed
from tidegate.pipeline.ingest.connector import Connector, SourceBatch
from tidegate.pipeline.ingest.definition import IngestDefinition
from tidegate.pipeline.ingest.publishing import Outcome, TopicPublisher
from tidegate.pipeline.operations.shutdown import Stopped
from tidegate.pipeline.operations.status import Pace, Totals
from tidegate.pipeline.operations.supervisor import Say

READ_SECONDS = 0.25
"""How long a connector waits for messages before it is asked to stop."""
STOP_SECONDS_MAX = 4.0
MS_PER_S = 1_000


class Intake:
    """The source of a definition over all of its runs (a `SupervisedStream`).

    `say` gets a line when the gateway does not answer, and when it is retried.

    Attributes:
        run: the run since the newest start.
    """

    held_keys = None
    merger_failures = None

    def __init__(self, definition: IngestDefinition, say: Say) -> None:
        self.definition = definition
        self.run: IntakeRun | None = None
        self._say = say
        self._totals = Totals()
        self._lock = threading.Lock()

    @property
    def totals(self) -> Totals:
        """Counts of all runs."""
        with self._lock:
            return self._totals

    @property
    def working_s(self) -> float | None:
        """For how many seconds a batch has been worked on; None between two of them."""
        begun_s = self.run.begun_s if self.run is not None else None
        return None if begun_s is None else time.monotonic() - begun_s

    def start(self) -> None:
        """Begin another run, after the end of the one before."""
        self.run = IntakeRun(self, self._say)
        self.run.thread.start()

    def count(self, batch: SourceBatch, outcome: Outcome, took_s: float) -> None:
        """Add a batch to the totals."""
        with self._lock:
            self._totals = self._totals.with_batch(
                messages=len(batch.records),
                published=outcome.published,
                repeated=outcome.repeated,
                refused=outcome.refused,
                took_s=took_s,
            )


class IntakeRun:
    """One run of a source in a thread of its own (a `StreamRun`).

    Attributes:
        thread: not started yet.
        begun_s: when the current batch began, in monotonic seconds; None between two of them.
        failure: why the run has ended, if it has failed.
        is_starting: True while it has not connected to its source yet.
        finds_nothing: True if there was nothing to read at the last attempt.
    """

    def __init__(self, intake: Intake, say: Say) -> None:
        self.begun_s: float | None = None
        self.failure: PipelineError | None = None
        self.is_starting = True
        self.finds_nothing = False
        self._intake = intake
        self._say = say
        self._newest = Pace()
        self._leaving = threading.Event()
        name = intake.definition.name
        # A daemon: Python would otherwise wait for a gateway or a broker that does not answer.
        self.thread = threading.Thread(target=self._work, name=f"ingest {name}", daemon=True)

    @property
    def is_active(self) -> bool:
        """True until the run has ended or failed."""
        return self.thread.is_alive()

    def pace(self, before: Pace) -> Pace:
        """Return the pace of the newest batch; `before` if there was none since."""
        return before if self._newest.batch is None else self._newest

    def leave(self) -> None:
        """End the run after the current batch; return at once."""
        self._leaving.set()

    def _work(self) -> None:
        name = self._intake.definition.name
        try:
            self._run()
        except Stopped:
            pass  # the batch is read again by the next run
        except PipelineError as error:
            # The type stays the same, because it decides about a restart and the exit code.
            self.failure = type(error)(f"{name}: {error}")
        except Exception as error:
            self.failure = StreamFailed(f"{name}: {type(error).__name__}: {error}")

    def _run(self) -> None:
        definition = self._intake.definition
        retry = reported_retry(definition.gateway, self._say, self._pause)
        run = int(time.time() * MS_PER_S)
        with (
            gateway_at(definition.gateway, retry) as gateway,
            closing(TopicPublisher(definition, gateway, run)) as publisher,
            closing(definition.source.connector(definition.name)) as connector,
        ):
            publisher.prepare()
            connector.open(publisher.through)
            self.is_starting = False
            while not self._leaving.is_set():
                self._take_batch(connector, publisher)

    def _take_batch(self, connector: Connector, publisher: TopicPublisher) -> None:
        batch = connector.read(READ_SECONDS)
        self.finds_nothing = batch is None
        if batch is None:
            return
        self.begun_s = time.monotonic()
        try:
            outcome = publisher.publish(batch)
            connector.acknowledge(batch)
            took_s = time.monotonic() - self.begun_s
        finally:
            self.begun_s = None
        self._intake.count(batch, outcome, took_s)
        self._newest = Pace(
            batch=self._intake.totals.batches,
            rows_per_s=len(batch.records) / took_s if took_s else 0.0,
            batch_s=took_s,
            lag=batch.lag,
        )

    def _pause(self, seconds: float) -> None:
        if self._leaving.wait(seconds):
            raise Stopped


def stop_intakes(intakes: list[Intake]) -> None:
    """End the runs of sources after their current batches; give up on what does not end."""
    runs = [each.run for each in intakes if each.run is not None]
    for run in runs:
        run.leave()
    give_up_at = time.monotonic() + STOP_SECONDS_MAX
    for run in runs:
        run.thread.join(max(0.0, give_up_at - time.monotonic()))
