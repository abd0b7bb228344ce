"""Figures of the store: those seen from outside, and those that it tells itself."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from app.figures import Figures
from app.metrics.families import counter, gauge, histogram
from app.stores.figures import MeasuredStore, StoreFigures
from app.stores.store import Store

MS_PER_S = 1_000


def store_families(store: Store, figures: Figures) -> Iterator[Metric]:
    """Times and failures of any store; what it holds of one that tells."""
    yield from seen_families(figures)
    if isinstance(store, MeasuredStore):
        yield from told_families(store.figures())


def seen_families(figures: Figures) -> Iterator[Metric]:
    """What is seen from outside."""
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


def told_families(told: StoreFigures) -> Iterator[Metric]:
    """What the store tells; its size only if it keeps anything."""
    yield counter("store_commits", "Steps in which the store wrote something.", told.commits)
    yield gauge("store_queued", "Writes that wait for their commit.", told.queued)
    if told.size_bytes is not None:
        yield gauge("store_size_bytes", "What the store takes up.", told.size_bytes)
