"""Metrics of a running command for Prometheus: a sample for each stream, on its own port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.pipeline.errors import UsageInvalid
from tidegate.pipeline.operations.status import State, StreamStatus

PREFIX = "tidegate_pipeline_"
LABEL = "query"  # as Spark calls a running stream
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric: its name without prefix, what it says, and where it comes from.

    A status without this figure has no sample. `rises` marks a counter, whose samples are
    called `..._total`, from a gauge.
    """

    name: str
    meaning: str
    of: Callable[[StreamStatus], float | None]
    rises: bool = False


FIGURES = (
    Figure(
        "running",
        "1 while the query runs; 0 while it waits for a restart, and after its end.",
        lambda now: now.state is State.RUNNING,
    ),
    Figure(
        "failed", "1 after an error that no restart mends.", lambda now: now.state is State.FAILED
    ),
    Figure("batches", "Batches done.", lambda now: now.totals.batches, rises=True),
    Figure("messages", "Messages read.", lambda now: now.totals.messages, rises=True),
    Figure("published", "Rows written to the sink.", lambda now: now.totals.published, rises=True),
    Figure(
        "repeated",
        "Rows that an earlier attempt had written.",
        lambda now: now.totals.repeated,
        rises=True,
    ),
    Figure("dead_letters", "Lines refused.", lambda now: now.totals.refused, rises=True),
    Figure(
        "unmatched_removals",
        "Removals that found no record.",
        lambda now: now.totals.unmatched,
        rises=True,
    ),
    Figure("restarts", "Starts after a failure.", lambda now: now.restarts, rises=True),
    Figure("batch", "Number of the newest batch.", lambda now: now.pace.batch),
    Figure("batch_seconds", "Duration of the newest batch.", lambda now: now.pace.batch_s),
    Figure(
        "rows_per_second", "Rows a second of the newest batch.", lambda now: now.pace.rows_per_s
    ),
    Figure(
        "lag_messages",
        "Messages of the source topic after the newest batch.",
        lambda now: now.pace.lag,
    ),
    Figure(
        "journal_margin_messages",
        "Messages that the source's journal may drop before it drops an unread one.",
        lambda now: now.pace.margin,
    ),
    Figure("held_keys", "Keys that wait for the end of their interval.", lambda now: now.held),
    Figure(
        "merger_failures",
        "Failures of the registered merger since the checkpoint began.",
        lambda now: now.merger_failures,
    ),
    Figure(
        "status_timestamp_seconds",
        "Time of this status; it is old if the command hangs.",
        lambda now: now.at_s,
    ),
)


class MetricsSink(Collector):
    """The newest status of each stream, set by the main thread and scraped by another."""

    def __init__(self) -> None:
        self._newest: Sequence[StreamStatus] = ()

    def show(self, statuses: Sequence[StreamStatus]) -> None:
        """Replace the status that is scraped."""
        self._newest = statuses

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each figure."""
        # One read: the main thread replaces the sequence while a scrape runs.
        statuses = self._newest
        for figure in FIGURES:
            kind = CounterMetricFamily if figure.rises else GaugeMetricFamily
            family = kind(PREFIX + figure.name, figure.meaning, labels=[LABEL])
            for status in statuses:
                value = figure.of(status)
                if value is not None:
                    family.add_metric([status.name], float(value))
            yield family


@contextmanager
def serving_metrics(sink: MetricsSink, port: int, host: str) -> Iterator[int]:
    """Answer scrapes while the block runs; the answer is the port, which 0 leaves open.

    Raises:
        UsageInvalid: it is no port, or another process listens there.
    """
    if not 0 <= port <= PORT_MAX:
        raise UsageInvalid(f"--metrics-port: expected 1 to {PORT_MAX}, not {port}")
    # A registry of our own: the default one adds metrics of the Python process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(sink)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UsageInvalid(
            f"no metrics on {host}:{port}: {(error.strerror or str(error)).lower()}"
        ) from None
    try:
        yield server.server_port
    finally:
        # In this order: closing the socket first would end the server's loop with a traceback.
        server.shutdown()
        server.server_close()
        thread.join()
