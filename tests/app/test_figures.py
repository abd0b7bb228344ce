"""Histograms count by upper bound."""

from __future__ import annotations

from math import inf

from tidegate.app.figures import BYTES, SECONDS, Histogram


def test_a_value_counts_at_and_above_its_bound() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        histogram.note(value)
    assert list(histogram.cumulative()) == [(1.0, 2), (10.0, 4), (inf, 5)]
    assert (histogram.count, histogram.total) == (5, 24.0)


def test_durations_are_kept_in_seconds() -> None:
    histogram = Histogram()
    histogram.note(0.002)
    assert dict(histogram.cumulative())[0.0025] == 1
    assert histogram.total == 0.002


def test_bounds_rise() -> None:
    for bounds in (SECONDS, BYTES):
        assert list(bounds) == sorted(set(bounds))
