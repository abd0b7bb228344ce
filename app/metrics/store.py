"""Metrics of the store, both measured by the gateway and reported by the store."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from tidegate.app.http.counters import Counters
from tidegate.app.metrics.families import counter, gauge, histogram
from tidegate.app.stores.store import MeasuredStore, Store, StoreFigures

MS_PER_S = 1_000


def store_families(store: Store, figures: Counters) -> Iterator[Metric]:
    """Yield durations and failures of any store, and the figures of a store that reports them."""
    yield from measured_families(figures)
    if isinstance(store, MeasuredStore):
        yield from reported_families(store.figures())


def measured_families(figures: Counters) -> Iterator[Metric]:
    """Yield what the gateway measures."""
    yield histogram("store_append_seconds", "The store's part of a publish.", figures.append)
    yield counter(
        "store_failures", "Publishes that the store could not keep.", figures.store_failures
    )
    if figures.checkpointed_ms is not None:
        yield gauge(
            "checkpoint_timestamp_seconds",
            "When all that had been published was in checkpoints, as far as the store wants any.",
            figures.checkpointed_ms / MS_PER_S,
        )


def reported_families(figures: StoreFigures) -> Iterator[Metric]:
    """Yield what the store reports; its size only if it keeps anything."""
    yield counter("store_commits", "Steps in which the store wrote something.", figures.commits)
    yield gauge("store_queued", "Writes that wait for their commit.", figures.queued)
    if figures.size_bytes is not None:
        yield gauge("store_size_bytes", "What the store takes up.", figures.size_bytes)
