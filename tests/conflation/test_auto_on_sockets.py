"""`conflation=auto` on simulated sockets: what holds for every load, rate and round trip."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st

from tests.support.network.fluid import Load, Pipe, Play
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.auto import STEPS_NS, Decision
from tidegate.conflation.subscription import Auto
from tidegate.keys.text.duration import MILLISECOND, SECOND

ALL = Auto(STEPS_NS[0], STEPS_NS[-1])
FAST = 100_000_000.0

LOADS = st.builds(
    Load,
    # so many that no interval of the ladder rounds them
    messages_per_s=st.integers(3, 200).map(lambda twenty: 20.0 * twenty),
    keys=st.integers(1, 5_000),
    row_bytes=st.integers(40, 2_000),
)
RATES = st.floats(3, 7).map(lambda power: 10.0**power)
BOUNDS = st.tuples(st.sampled_from(STEPS_NS), st.sampled_from(STEPS_NS)).map(
    lambda pair: Auto(min(pair), max(pair))
)
ROUND_TRIPS = st.integers(0, 300).map(lambda ms: ms * MILLISECOND)
NOISES = st.floats(0, 0.2)
SEEDS = st.integers(0, 1 << 16).map(random.Random)


def played(
    load: Load, bounds: Auto, *rates: tuple[float, float], room_bytes: int = 1 << 30, **pipe: Any
) -> Play:
    """A play at so many bytes a second for so many seconds, one after the other."""
    play = Play(load, Pipe(rates[0][0], **pipe), bounds, room_bytes=room_bytes)
    for bytes_per_s, seconds in rates:
        play.pipe.bytes_per_s = bytes_per_s
        play.play(seconds)
    return play


def most_in_a_minute(decisions: list[Decision]) -> int:
    times = [decision.at for decision in decisions]
    return max((sum(at <= t < at + 60 * SECOND for t in times) for at in times), default=0)


def step_between(decision: Decision) -> int:
    return abs(STEPS_NS.index(decision.from_ns) - STEPS_NS.index(decision.to_ns))


def is_clear(load: Load, bytes_per_s: float) -> bool:
    """Whether no flush drains so nearly within its interval that a byte would decide it."""
    return all(abs(load.drains(ns, bytes_per_s) - 1) > 0.01 for ns in STEPS_NS)


def needed(load: Load, bytes_per_s: float, bounds: Auto, within: float = 1.0) -> int:
    """The shortest interval whose flush drains in (that share of) it, else the longest one."""
    steps = [ns for ns in STEPS_NS if bounds.min_ns <= ns <= bounds.max_ns]
    return next((ns for ns in steps if load.drains(ns, bytes_per_s) <= within), steps[-1])


@rule("auto-3")
@given(load=LOADS, rate=RATES, bounds=BOUNDS)
@example(load=Load(1_000, 200, 100), rate=20_000.0, bounds=ALL)
@example(load=Load(1_000, 5_000, 2_000), rate=300_000.0, bounds=ALL)
@examples(20)
def test_a_slowdown_is_followed_within_five_flushes(load: Load, rate: float, bounds: Auto) -> None:
    # Rule auto-3: two flushes for the first step and one for each further one, so that five are
    # enough for four steps; where the rate is nearly enough it takes one more to see it.
    assume(is_clear(load, rate))
    play = played(load, bounds, (FAST, 3))
    assert play.decisions == []
    slowed_at = play.now
    play.pipe.bytes_per_s = rate
    target_ns = needed(load, rate, bounds)
    on_the_way = [ns for ns in STEPS_NS if bounds.min_ns <= ns < target_ns]
    is_far = all(load.drains(ns, rate) > 2.5 for ns in on_the_way)
    play.play(2 + 5 * target_ns / SECOND)
    if on_the_way:
        there = next(decision.at for decision in play.decisions if decision.to_ns == target_ns)
        flushes = sum(slowed_at <= at < there for at, _, _ in play.flushes)
        assert flushes <= len(on_the_way) * (1 if is_far else 2) + 1
    assert target_ns <= play.state.interval_ns <= needed(load, rate, bounds, within=0.7)


@rule("auto-4")
@given(
    load=LOADS, rate=RATES, bounds=BOUNDS, round_trip_ns=ROUND_TRIPS, noise=NOISES, chance=SEEDS,
    room_bytes=st.sampled_from([4 << 10, 64 << 10, 1 << 30]),
)  # fmt: skip
@settings(examples(6), phases=[Phase.explicit, Phase.generate])
def test_at_steady_load_it_comes_to_rest(
    load: Load, rate: float, bounds: Auto, room_bytes: int, round_trip_ns: int,
    noise: float, chance: random.Random,
) -> None:  # fmt: skip
    # Rule auto-4: three changes a minute at most, and no swinging between two steps.
    pipe = {"round_trip_ns": round_trip_ns, "noise": noise, "chance": chance}
    play = played(load, bounds, (rate, 60), room_bytes=room_bytes, **pipe)
    at_first = len(play.decisions)
    play.play(240)
    later = play.decisions[at_first:]
    assert most_in_a_minute(later) <= 3
    assert all(bounds.min_ns <= decision.to_ns <= bounds.max_ns for decision in play.decisions)
    assert all(
        {one.from_ns, one.to_ns} <= set(STEPS_NS) and step_between(one) == 1
        for one in play.decisions
    )
    assert later == [] or later[-1].at < play.now - 60 * SECOND


@rule("auto-4")
@given(load=LOADS, rate=RATES, bounds=BOUNDS, round_trip_ns=ROUND_TRIPS)
@examples(8)
def test_it_comes_back_when_the_rate_rises(
    load: Load, rate: float, bounds: Auto, round_trip_ns: int
) -> None:
    # Rule auto-4: every ten seconds or two flushes a step, the moment what was held up has drained.
    play = played(load, bounds, (rate, 20), round_trip_ns=round_trip_ns)
    play.pipe.bytes_per_s = FAST
    play.pipe.drop_backlog(play.now)
    play.play(sum(12 + 3 * ns / SECOND for ns in STEPS_NS if ns <= bounds.max_ns))
    assert play.state.interval_ns == bounds.min_ns


@rule("auto-2")
@pytest.mark.parametrize(
    ("load", "bytes_per_s", "interval_ms"),
    [
        # a slow socket that few messages are enough for: small flushes, and never drained
        (Load(60, 60, 100), 4_000.0, 2_000),
        # a fast one that takes large flushes at once
        (Load(100_000, 20_000, 200), 100_000_000.0, 50),
        # as much as it takes, and not a byte more
        (Load(1_000, 200, 100), 102_000.0, 50),
        # every message another key: no interval is long enough
        (Load(100, 1_000_000, 100), 5_000.0, 30_000),
    ],
)
def test_what_is_written_says_nothing_what_is_taken_does(
    load: Load, bytes_per_s: float, interval_ms: int
) -> None:
    # rule auto-2
    play = played(load, ALL, (bytes_per_s, 90))
    assert play.state.interval_ns == interval_ms * MILLISECOND


def test_a_healthy_socket_costs_a_look_a_flush() -> None:
    play = played(Load(1_000, 200, 100), ALL, (FAST, 60))
    assert play.looks == len(play.flushes)
