"""Constructors of metric families; names end with their unit, as Prometheus recommends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tidegate.app.http.counters import Histogram

Labelled = TypeVar("Labelled", CounterMetricFamily, GaugeMetricFamily)

PREFIX = "tidegate_"


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Return a value that rises and falls."""
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


def counter(name: str, meaning: str, value: float) -> Metric:
    """Return a value that only rises; its samples are named `…_total`."""
    return CounterMetricFamily(PREFIX + name, meaning, value=value)


def gauges(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return gauges by a label with few values."""
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=[label])
    return _filled(family, values)


def counters(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return counters by a label with few values."""
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    return _filled(family, values)


def histogram(name: str, meaning: str, seen: Histogram) -> Metric:
    """Return the cumulative counts and the sum of a histogram."""
    buckets = [(_bound(bound), float(count)) for bound, count in seen.cumulative()]
    return HistogramMetricFamily(PREFIX + name, meaning, buckets=buckets, sum_value=seen.total)


def _filled(family: Labelled, values: Mapping[str, float]) -> Labelled:
    for value, figure in values.items():
        family.add_metric([value], figure)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
