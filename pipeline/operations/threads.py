"""Streams without Spark: each has a thread, and the supervisor starts it again after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec

from tidegate.pipeline.errors import ExtraMissing, PipelineError, StreamFailed
from tidegate.pipeline.operations.shutdown import Stop, Stopped
from tidegate.pipeline.operations.status import (
    BatchCount,
    Pace,
    StreamStatus,
    Totals,
    progress_line,
)
from tidegate.pipeline.operations.supervisor import RunOptions, Say, StartGate, Supervisor
from tidegate.pipeline.operations.watch import ending_in_order, status_sinks, watch

READ_SECONDS = 0.25
"""How long a stream waits for messages before it checks whether it is to end."""
STOP_SECONDS_MAX = 4.0


class ThreadStream:
    """A stream over all of its runs (a `SupervisedStream`); a subclass does the work of one run.

    Args:
        name: the name of its definition.
        gateway: the address of the gateway that gets its status.
        headline: the line that is printed at its start.
        dead_letters: the topic of what was refused.

    Attributes:
        run: the run since the newest start.
        totals: counts of all runs; replaced by the thread of the run, read by others.
    """

    held_keys = None
    merger_failures = None

    def __init__(self, name: str, gateway: str, headline: str, dead_letters: str) -> None:
        self.name = name
        self.gateway = gateway
        self.headline = headline
        self.dead_letters = dead_letters
        self.run: ThreadRun | None = None
        self.totals = Totals()

    def work(self, run: ThreadRun) -> None:
        """Read and write until the run is asked to end."""
        raise NotImplementedError

    @property
    def working_s(self) -> float | None:
        """For how many seconds a batch has been worked on; None between two of them."""
        begun_s = self.run.begun_s if self.run is not None else None
        return None if begun_s is None else time.monotonic() - begun_s

    def start(self) -> None:
        """Begin another run, after the end of the one before."""
        self.run = ThreadRun(self)
        self.run.thread.start()


class ThreadRun:
    """One run of a stream in its own thread (a `StreamRun`).

    Attributes:
        thread: not started yet.
        begun_s: when the current batch began, in monotonic seconds; None between two of them.
        failure: why the run has ended, if it has failed.
        is_starting: True while it has not connected to its source yet.
        finds_nothing: True if there was nothing to read at the last attempt.
    """

    def __init__(self, stream: ThreadStream) -> None:
        self.begun_s: float | None = None
        self.failure: PipelineError | None = None
        self.is_starting = True
        self.finds_nothing = False
        self._stream = stream
        self._newest = Pace()
        self._leaving = threading.Event()
        # A daemon: Python would otherwise wait for a gateway or a broker that does not answer.
        self.thread = threading.Thread(target=self._work, name=f"run {stream.name}", daemon=True)

    @property
    def is_active(self) -> bool:
        """True until the run has ended or failed."""
        return self.thread.is_alive()

    @property
    def is_leaving(self) -> bool:
        """True once the run was asked to end."""
        return self._leaving.is_set()

    def pace(self, before: Pace) -> Pace:
        """Return the pace of the newest batch; `before` if there was none since."""
        return before if self._newest.batch is None else self._newest

    def leave(self) -> None:
        """End the run after the current batch; return at once."""
        self._leaving.set()

    def pause(self, seconds: float) -> None:
        """Wait before another attempt.

        Raises:
            Stopped: the run was asked to end.
        """
        if self._leaving.wait(seconds):
            raise Stopped

    def batch(self, work: Callable[[], BatchCount], lag: int | None = None) -> None:
        """Do the work on a batch; time it, and count it if it ends without an error.

        `lag` is how many messages the source has after the batch, if known.
        """
        begun_s = self.begun_s = time.monotonic()
        try:
            count = work()
        finally:
            self.begun_s = None
        took_s = time.monotonic() - begun_s
        self._stream.totals = self._stream.totals.with_batch(count, took_s)
        self._newest = Pace(
            batch=self._stream.totals.batches,
            rows_per_s=count.messages / took_s if took_s else 0.0,
            batch_s=took_s,
            lag=lag,
        )

    def _work(self) -> None:
        name = self._stream.name
        try:
            self._stream.work(self)
        except Stopped:
            pass  # the batch is read again by the next run
        except PipelineError as error:
            # The type stays the same, because it decides about a restart and the exit code.
            self.failure = type(error)(f"{name}: {error}")
        except Exception as error:
            self.failure = StreamFailed(f"{name}: {type(error).__name__}: {error}")


def stop_threads(streams: Sequence[ThreadStream]) -> None:
    """End the runs of streams after their current batches; give up on what does not end."""
    runs = [each.run for each in streams if each.run is not None]
    for run in runs:
        run.leave()
    give_up_at = time.monotonic() + STOP_SECONDS_MAX
    for run in runs:
        run.thread.join(max(0.0, give_up_at - time.monotonic()))


def run_threads(
    streams: Sequence[ThreadStream], options: RunOptions, stop: Stop, report: Say
) -> None:
    """Run streams until all have ended, or `stop` is asked for.

    Args:
        streams: not started yet.
        options: how they are run.
        stop: ends them in order.
        report: prints a line.

    Raises:
        PipelineError: what ended the first stream that failed for good, as one sentence.
    """
    if options.metrics_port is not None and find_spec("prometheus_client") is None:
        raise ExtraMissing("--metrics-port needs the extra ingest: pip install 'tidegate[ingest]'")

    dead_letters = {each.name: f"topic {each.dead_letters}" for each in streams}

    def line(now: StreamStatus) -> str:
        return progress_line(now, dead_letters[now.name])

    members = [
        Supervisor(
            each.name,
            each,
            each.start,
            restarts=options.goes_on,
            say=report,
            gate=StartGate(),  # its own: threads need not start one after the other
        )
        for each in streams
    ]
    with ExitStack() as opened:
        gateways = {each.gateway for each in streams}
        sinks = opened.enter_context(status_sinks(options, gateways, line, report))
        opened.enter_context(ending_in_order(partial(stop_threads, streams), members, sinks))
        for each, member in zip(streams, members, strict=True):
            report(each.headline)
            member.start_first()
        watch(members, sinks, stop, report)
    failures = [each.failure for each in members if each.failure is not None]
    if failures:
        raise failures[0]
