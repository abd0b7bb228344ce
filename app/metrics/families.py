"""Families of metrics, made in one line each; names have their unit last, as Prometheus wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from app.figures import Histogram

Labelled = TypeVar("Labelled", CounterMetricFamily, GaugeMetricFamily)

PREFIX = "tidegate_"


def gauge(name: str, meaning: str, value: float) -> Metric:
    """A figure that rises and falls."""
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


def counter(name: str, meaning: str, value: float) -> Metric:
    """A figure that only rises; its samples are called `…_total`."""
    return CounterMetricFamily(PREFIX + name, meaning, value=value)


def gauges(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """One that rises and falls, by a label with few values."""
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=[label])
    return _filled(family, values)


def counters(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """One that only rises, by a label with few values."""
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    return _filled(family, values)


def histogram(name: str, meaning: str, seen: Histogram) -> Metric:
    """How often what was seen lay below which bounds, and the sum."""
    buckets = [(_bound(bound), float(count)) for bound, count in seen.cumulative()]
    return HistogramMetricFamily(PREFIX + name, meaning, buckets=buckets, sum_value=seen.total)


def _filled(family: Labelled, values: Mapping[str, float]) -> Labelled:
    for value, figure in values.items():
        family.add_metric([value], figure)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
