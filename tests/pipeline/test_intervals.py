"""Deliveries of many messages at once are those of one message after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.naive_plan import by_batch, by_key
from tests.support.profiles import examples
from tidegate.pipeline.intervals import (
    FEW_WALKS,
    MILLISECOND_NS,
    Interval,
    Pace,
    one_run_each,
    runs_of,
)

steps = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 1, 3, 40, 200])), max_size=60)


@pytest.mark.parametrize("pace", Pace)
@examples(20)
@given(steps, st.integers(1, 90))
def test_runs_are_what_a_loop_over_messages_finds(
    pace: Pace, steps: list[tuple[int, int]], interval_ms: int
) -> None:
    assert_as_a_loop(pace, steps, interval_ms)


@pytest.mark.parametrize("interval_ms", [1, 60, 1_000])
@pytest.mark.parametrize("keys", [FEW_WALKS, 4 * FEW_WALKS])
def test_intervals_of_many_keys_are_found_together(keys: int, interval_ms: int) -> None:
    rng = np.random.default_rng(1)
    # One key goes on alone, when the walks of all others have ended.
    codes = [*rng.integers(0, keys, 3_000).tolist(), *[1] * 500]
    gaps = rng.integers(0, 9, len(codes)).tolist()
    assert_as_a_loop(Pace.KEY, list(zip(codes, gaps, strict=True)), interval_ms)


def assert_as_a_loop(pace: Pace, steps: list[tuple[int, int]], interval_ms: int) -> None:
    times = np.cumsum([step for _, step in steps], dtype=np.int64) * MILLISECOND_NS
    codes = np.array([code for code, _ in steps], np.int64)
    interval = Interval(interval_ms * MILLISECOND_NS, pace)
    runs = runs_of(interval, codes, times)
    rows = zip(codes.tolist(), times.tolist(), range(len(steps)), strict=True)
    messages = [(str(code), time, place) for code, time, place in rows]
    counted = (by_key if pace is Pace.KEY else by_batch)(messages, interval.interval_ns)
    lasts = runs.order[runs.ends - 1]
    ages = runs.due_ns - times[runs.order[runs.starts]]
    assert sorted(zip(lasts.tolist(), ages.tolist(), strict=True)) == sorted(
        zip(counted.sizes, counted.ages_ns, strict=True)
    )


@pytest.mark.parametrize(
    ("interval_ms", "opened_ms", "due_ms"),
    [(1_000, 7, 1_050), (1_000, 50, 1_050), (100, 1, 105), (10_000, 1, 10_050)],
)
def test_by_key_an_interval_ends_with_a_tick(interval_ms: int, opened_ms: int, due_ms: int) -> None:
    interval = Interval(interval_ms * MILLISECOND_NS, Pace.KEY)
    assert interval.due_ns(np.array([opened_ms]) * MILLISECOND_NS) == [due_ms * MILLISECOND_NS]


def test_a_message_at_the_end_of_an_interval_opens_the_next() -> None:
    times = np.array([0, 999, 1_000]) * MILLISECOND_NS
    for pace in Pace:
        runs = runs_of(Interval(1_000 * MILLISECOND_NS, pace), np.zeros(3, np.int64), times)
        assert (runs.ends - runs.starts).tolist() == [2, 1]


def test_runs_that_are_cut_are_due_as_their_first_part_is() -> None:
    codes = np.array([0, 1, 0, 1, 0])
    runs = one_run_each(Interval(10, Pace.KEY), codes, np.array([1, 2, 3, 4, 5]))
    cut = runs.cut(np.array([0, 1, 3]))
    assert cut.order.tolist() == runs.order.tolist() == [0, 2, 4, 1, 3]
    assert (cut.starts.tolist(), cut.ends.tolist()) == ([0, 1, 3], [1, 3, 5])
    assert cut.due_ns.tolist() == [11, 11, 12]
    assert runs.homes(cut.starts).tolist() == [0, 0, 1]
