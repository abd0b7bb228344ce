"""The main thread's loop over running streams, the places that get their status, and their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tidegate.clients.errors import GatewayError
from tidegate.clients.requests import JSON
from tidegate.pipeline.connection import AT_ONCE, gateway_at, pipeline_error
from tidegate.pipeline.errors import GatewayRefused, PipelineError, StreamFailed
from tidegate.pipeline.operations.shutdown import STOPPING, CutOff, Stop
from tidegate.pipeline.operations.status import PROGRESS_EVERY_S, StreamStatus
from tidegate.pipeline.operations.supervisor import RunOptions, Say, Supervisor

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

WATCH_EVERY_S = 0.1
POLL_EVERY_S = 0.05
# Docker kills a container ten seconds after SIGTERM, and Spark's own end needs a part of them.
LAST_BATCH_SECONDS_MAX = 4.0


@dataclass
class StatusSink:
    """A place that gets the status of all streams, every so many seconds."""

    show: Callable[[Sequence[StreamStatus]], None]
    every_s: float
    due_s: float = 0.0


def watch(
    watched: Sequence[Supervisor],
    sinks: Sequence[StatusSink],
    stop: Stop,
    say: Say,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    renew: Callable[[], None] | None = None,
) -> None:
    """Poll streams and report their status, until all are over, or until `stop`, which it says.

    A stream that fails for good while others go on is reported at once. `renew` may add and
    remove streams; with it the loop ends only by `stop`, because more streams may always come.
    """
    for sink in sinks:
        sink.due_s = monotonic() + sink.every_s
    # By identity of the error: a stream that is started again may fail for the same reason again.
    reported: list[PipelineError] = []
    while not stop.asked:
        if renew is not None:
            renew()
        for each in watched:
            each.poll()
        if renew is None and all(each.is_over for each in watched):
            return
        for each in watched:
            if each.failure is not None and each.failure not in reported:
                reported.append(each.failure)
                say(f"{each.failure}; the other streams go on")
        now_s = monotonic()
        due = [sink for sink in sinks if now_s >= sink.due_s]
        report_status(watched, due)
        for sink in due:  # skip the reports that a long poll has missed
            sink.due_s += sink.every_s * (1 + (now_s - sink.due_s) // sink.every_s)
        stop.wait(WATCH_EVERY_S)
    say(STOPPING)


def report_status(watched: Sequence[Supervisor], sinks: Sequence[StatusSink]) -> None:
    """Send the status of all streams to these sinks."""
    if not sinks:
        return
    statuses = [each.status() for each in watched]
    for sink in sinks:
        sink.show(statuses)


# --- where the status goes: the terminal, gateways, Prometheus

METRICS_EVERY_S = 1.0
TOPIC = "tidegate.pipelines"
PRODUCER_PREFIX = "tidegate.pipeline."
ERROR_CHARACTERS_MAX = 1_000
GOODBYE_SECONDS_MAX = 2.0
MS_PER_S = 1_000


@contextmanager
def status_sinks(
    options: RunOptions, gateways: Iterable[str], line: Callable[[StreamStatus], str], say: Say
) -> Iterator[list[StatusSink]]:
    """Yield the sinks of a command, each open while the block runs.

    Args:
        options: have the port of Prometheus, if there is one.
        gateways: addresses; the topic `tidegate.pipelines` of each gets the status.
        line: returns the line for the terminal.
        say: prints it.

    Raises:
        UsageInvalid: an address is malformed, or the port is in use.
    """

    def print_lines(statuses: Sequence[StreamStatus]) -> None:
        for status in statuses:
            say(line(status))

    found = [StatusSink(print_lines, PROGRESS_EVERY_S)]
    with ExitStack() as opened:
        for gateway in sorted(gateways):
            reporter = Reporter(gateway, say)
            opened.enter_context(reporting(reporter))
            found.append(StatusSink(reporter.publish, PROGRESS_EVERY_S))
        if options.metrics_port is not None:
            # Import it only here: the base installation has no Prometheus client.
            from tidegate.pipeline.operations.metrics import MetricsSink, serving_metrics

            metrics = MetricsSink()
            opened.enter_context(
                serving_metrics(metrics, options.metrics_port, options.metrics_host)
            )
            found.append(StatusSink(metrics.show, METRICS_EVERY_S))
        yield found


class Reporter:
    """Publishes the status to one gateway, from its own thread.

    A gateway that does not answer therefore delays no stream. Only the newest status counts: what
    could not be published is not published later. `say` gets one line when the gateway begins to
    refuse.

    Raises:
        UsageInvalid: the address is malformed.
    """

    def __init__(self, gateway: str, say: Say) -> None:
        self._address = gateway
        self._opened = ExitStack()
        self._gateway = self._opened.enter_context(gateway_at(gateway, AT_ONCE))
        self._say = say
        self._newest: Sequence[StreamStatus] = ()
        self._woken = threading.Event()
        self._ended = False

    def publish(self, statuses: Sequence[StreamStatus]) -> None:
        """Publish this status as soon as possible, and no older one; return at once."""
        self._newest = statuses
        self._woken.set()

    def end(self) -> None:
        """Publish the newest status once more, then stop."""
        self._ended = True
        self._woken.set()

    def run(self) -> None:
        """Publish each new status until `end` is called."""
        with self._opened:
            is_last = is_refused = False
            while not is_last:
                self._woken.wait()
                self._woken.clear()
                is_last = self._ended
                try:
                    for status in self._newest:
                        producer, number, message = message_of(status)
                        self._gateway.publish_body(TOPIC, message, producer, number, JSON)
                    is_refused = False
                except GatewayError as error:
                    # The next status replaces this one, when the gateway is up, has room, or takes
                    # a token that was renewed.
                    refusal = pipeline_error(error, self._address)
                    if isinstance(refusal, GatewayRefused) and not is_refused:
                        is_refused = True
                        self._say(f"the gateway does not get the status of streams: {refusal}")


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Run a reporter's thread during the block; a gateway that hangs does not delay the end."""
    # A daemon: Python would otherwise wait for a gateway that does not answer.
    thread = threading.Thread(target=reporter.run, name="report status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reporter.end()
        thread.join(GOODBYE_SECONDS_MAX)


def message_of(now: StreamStatus) -> tuple[str, int, bytes]:
    """Return the producer, the number and the body of a status message.

    The number is the time in ms, so that a command that is started again continues above the last
    number of its earlier run.
    """
    at_ms = int(now.at_s * MS_PER_S)
    document = {
        "pipeline": now.name,
        "state": now.state.value,
        "batch": now.pace.batch,
        "batches": now.totals.batches,
        "messages": now.totals.messages,
        "published": now.totals.published,
        "dead_letters": now.totals.refused,
        "rows_per_s": round(now.pace.rows_per_s, 3),
        "batch_s": now.pace.batch_s,
        "lag": now.pace.lag,
        "held_keys": now.held,
        "restarts": now.restarts,
        "error": now.error[:ERROR_CHARACTERS_MAX],
        "at_ms": at_ms,
    }
    return f"{PRODUCER_PREFIX}{now.name}.state", at_ms, msgspec.json.encode(document)


# --- how running queries end: between two batches, with a last status


def stop_queries(queries: Sequence[StreamingQuery | None]) -> None:
    """Stop each query between two batches; a batch that does not end is repeated next time."""
    give_up_at = time.monotonic() + LAST_BATCH_SECONDS_MAX
    for query in queries:
        if query is None:
            continue
        # `stop` interrupts a batch wherever it is; between two batches there is nothing to repeat.
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up_at:
            time.sleep(POLL_EVERY_S)
        query.stop()


@contextmanager
def ending_in_order(
    stop_all: Callable[[], None], members: Sequence[Supervisor], sinks: Sequence[StatusSink]
) -> Iterator[None]:
    """Stop the queries between two batches when the block ends, and report their last status.

    A signal that has cut off the start is the exception: PySpark was interrupted in the middle of
    an answer of Java's, and nothing more can be asked of it.
    """
    is_cut_off = False
    try:
        yield
    except CutOff:
        is_cut_off = True
        raise
    finally:
        if not is_cut_off:
            stop_all()
            for each in members:
                each.end()
            report_status(members, sinks)


@contextmanager
def outliving_its_jvm(stop: Stop) -> Iterator[None]:
    """Turn the loss of Java during the block into one sentence.

    Raises:
        StreamFailed: Java has ended, and `stop` was not asked for.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if not stop.asked:
            raise StreamFailed("Spark's Java process has ended, or refuses to go on") from error
