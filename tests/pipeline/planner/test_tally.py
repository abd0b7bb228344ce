"""Tallies do not depend on where the stream of messages is cut into blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.naive_plan import by_batch, by_key
from tests.support.profiles import examples
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.planner.tally import Hot, IntervalTally, KeyTally, Seen, Sent, Succession

steps = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 1, 3, 40, 200])), max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=6)


@pytest.mark.parametrize("pace", Pace)
@examples(20)
@given(steps, cuts, st.integers(1, 90))
def test_blocks_of_any_size_add_up_to_the_loop(
    pace: Pace, steps: list[tuple[int, int]], edges: list[int], interval_ms: int
) -> None:
    codes = np.array([code for code, _ in steps], np.int64)
    times = np.cumsum([step for _, step in steps], dtype=np.int64) * MILLISECOND_NS
    sizes = np.arange(len(steps), dtype=np.int64)
    tally, succession = IntervalTally(Interval(interval_ms * MILLISECOND_NS, pace)), Succession()
    for low, high in pairwise([0, *sorted(edges), len(steps)]):
        block = slice(low, high)
        tally.take(succession.arrivals(codes[block], times[block], sizes[block]))
    sent = tally.finish()
    rows = zip(codes.tolist(), times.tolist(), sizes.tolist(), strict=True)
    messages = [(str(code), time, size) for code, time, size in rows]
    counted = (by_key if pace is Pace.KEY else by_batch)(messages, interval_ms * MILLISECOND_NS)
    assert (sent.messages, sent.bytes) == (len(counted.sizes), sum(counted.sizes))
    if counted.sizes:
        for percent in (50, 99, 100):
            assert sent.age_ms(percent) == counted.age_ms(percent)


def test_nothing_sent_has_no_age() -> None:
    assert Sent().age_ms(50) is None


def test_shards_add_up() -> None:
    both = Sent(2, 20, {100: 2}).plus(Sent(1, 5, {100: 1, 103: 0}))
    assert both == Sent(3, 25, {100: 3, 103: 0})
    seen = Seen(2, 9, 1, 4, [Hot("a", 2)]).plus(Seen(3, 9, 1, 5, [Hot("b", 3)]))
    assert seen == Seen(5, 18, 2, 9, [Hot("b", 3), Hot("a", 2)])


def test_keys_are_counted_with_the_weight_of_their_newest() -> None:
    tally = KeyTally()
    tally.add(np.array([0, 1, 0]), np.array([10, 20, 30]))
    tally.add(np.array([], np.int64), np.array([], np.int64))
    tally.add(np.array([2, 1]), np.array([5, 1]))
    assert tally.finish(["a", "b", "c"]) == Seen(
        5, 66, 3, 36, [Hot("a", 2), Hot("b", 2), Hot("c", 1)]
    )


def test_long_intervals_are_aged_in_steps() -> None:
    hour_ns = 3_600 * 1_000 * MILLISECOND_NS
    tally = IntervalTally(Interval(hour_ns, Pace.BATCH))
    times = np.array([0, 7]) * MILLISECOND_NS
    tally.take(Succession().arrivals(np.array([0, 1]), times, np.array([1, 1])))
    assert tally.finish().ages_ms == {3_600_000: 2}
