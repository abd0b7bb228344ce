"""The controller of `conflation=auto`, observation by observation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rules import rule
from tidegate.conflation.auto import (
    FRAMING_BYTES,
    STEPS_NS,
    Decision,
    Figures,
    InFlight,
    Observation,
    Reason,
    State,
    auto_within,
    step,
    step_not_above,
    step_not_below,
)
from tidegate.conflation.subscription import Auto
from tidegate.keys.text.duration import MILLISECOND, SECOND, parse_duration

MS = MILLISECOND
BOUNDS = Auto(50 * MS, 30 * SECOND)
FLUSH = 1_000


def flush(at_ms: int, overdue_bytes: int = 0, *, round_trip_ns: int = 0) -> Observation:
    """A flush is about to be written."""
    return look(at_ms, overdue_bytes, flush_bytes=FLUSH, round_trip_ns=round_trip_ns)


def look(
    at_ms: int, overdue_bytes: int = 0, *, flush_bytes: int = 0, round_trip_ns: int = 0
) -> Observation:
    """What is overdue has been unsent from the beginning."""
    since = 0 if overdue_bytes else None
    return Observation(
        at_ms * MS, overdue_bytes, overdue_bytes, since, round_trip_ns, flush_bytes=flush_bytes
    )


def on_its_way(at_ms: int) -> Observation:
    """Nothing is acknowledged yet, and nothing overdue."""
    return Observation(at_ms * MS, unsent_bytes=900, unsent_since=0)


def unsent(seen: Observation, unsent_bytes: int) -> Observation:
    """The same with more that is not acknowledged, if not overdue."""
    return seen._replace(unsent_bytes=unsent_bytes)


def full(at_ms: int, overdue_bytes: int) -> Observation:
    """A look while a write waits for room."""
    return look(at_ms, overdue_bytes)._replace(is_full=True)


def played(state: State, *seen: Observation) -> tuple[State, list[Decision]]:
    decisions: list[Decision] = []
    for each in seen:
        state, decision = step(state, each)
        decisions += [] if decision is None else [decision]
    return state, decisions


def moves(*seen: Observation, interval_ms: int = 50, bounds: Auto = BOUNDS) -> list[object]:
    """(when, to which interval, why) of each decision."""
    _, decisions = played(State(bounds, interval_ms * MS), *seen)
    return [(one.at // MS, one.to_ns // MS, str(one.reason)) for one in decisions]


def quick(from_ms: int, to_ms: int, interval_ms: int) -> list[Observation]:
    """Flushes that are acknowledged at once, each seen by a look."""
    return [
        each for at in range(from_ms, to_ms + 1, interval_ms) for each in (flush(at), look(at + 1))
    ]


@rule("auto-2", "auto-3")
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        # rule auto-2: a round is in time, recovering or late
        ([flush(0), flush(50), flush(100), flush(150)], []),
        ([flush(0), flush(50, 900), flush(100, 1_800)], [(100, 100, "slow")]),
        ([flush(0), flush(50, 900), flush(100), flush(150, 900), flush(200)], []),
        ([flush(0), flush(50, 900), flush(100, 650), flush(150, 400), flush(200, 150)], []),
        ([flush(0), flush(50, 900), flush(100, 651)], [(100, 100, "slow")]),
        # what recovers does not undo a late round before
        ([flush(0), flush(50, 900), flush(100, 650), flush(150, 900)], [(150, 100, "slow")]),
        # a pause in which the socket drains says nothing of the flushes around it
        (
            [flush(0), look(55, 900), look(110), flush(120), flush(170, 900)],
            [(170, 100, "slow")],
        ),
        # nor does one in which it is too early to say: bytes are on their way
        (
            [flush(0), on_its_way(55), look(110, 900), look(165, 900)],
            [(165, 100, "slow")],
        ),
        # a small flush that is never acknowledged is as late as a large one
        ([flush(0), look(50, 10), look(100, 10)], [(100, 100, "slow")]),
        # rule auto-3: each further late round is another step, at the end of the longer round
        (
            [flush(0), flush(50, 900), flush(100, 1_900), flush(200, 2_900), flush(400, 3_900)],
            [(100, 100, "slow"), (200, 200, "slow"), (400, 500, "slow")],
        ),
        (
            [flush(0), *(full(at, 9_000) for at in range(50, 500, 50))],
            [(100, 100, "full"), (200, 200, "full"), (400, 500, "full")],
        ),
        # a full socket recovers nothing: what it takes is not what waits
        ([flush(0), full(50, 9_000), full(100, 5_000)], [(100, 100, "full")]),
        # the flush at a step is of the interval before: that it is in time says nothing yet
        (
            [flush(0), flush(50, 90), flush(100, 180), flush(200), flush(300, 90)],
            [(100, 100, "slow"), (300, 200, "slow")],
        ),
        # what was unacknowledged at a step is overdue for longer now, and recovers
        (
            [flush(0), flush(50, 900), unsent(flush(100, 1_800), 9_000), flush(200, 2_500)],
            [(100, 100, "slow")],
        ),
        # looks and flushes within a round decide nothing
        ([flush(0), look(10, 900), flush(20, 900), look(30, 900), look(44, 900)], []),
        # nothing is written: nothing is seen
        ([look(0, 900), look(50, 900), look(100, 900)], []),
    ],
)
def test_when_it_becomes_longer(seen: list[Observation], expected: list[object]) -> None:
    assert moves(*seen) == expected


@rule("auto-4")
@pytest.mark.parametrize(
    ("interval_ms", "seen", "expected"),
    [
        # rule auto-4: after ten seconds of flushes that were acknowledged within 50 ms
        (200, quick(0, 9_800, 200), []),
        (200, quick(0, 10_000, 200), [(10_000, 100, "quick")]),
        # one of them was not: the ten seconds begin anew
        (
            200,
            [*quick(0, 4_800, 200), flush(5_000), look(5_051, 1), *quick(5_200, 15_200, 200)],
            [(15_200, 100, "quick")],
        ),
        # others filled the socket after a flush: the ten seconds begin with the next one
        (
            200,
            [
                *quick(0, 5_000, 200),
                flush(5_200, 500)._replace(unsent_since=5_010 * MS),
                look(5_201),
                *quick(5_400, 16_000, 200),
            ],
            [(15_200, 100, "quick")],
        ),
        # of several flushes in an interval the slowest counts
        (
            200,
            [
                each
                for at in range(0, 20_000, 200)
                for each in (flush(at), look(at + 90), flush(at + 100), look(at + 101))
            ],
            [],
        ),
        # whoever does not look knows nothing
        (200, [flush(at) for at in range(0, 20_000, 200)], []),
        # two flushes at least
        (30_000, quick(0, 60_000, 30_000), [(60_000, 10_000, "quick")]),
        # a pause is no hurry: flushes were quick before it and are quick after it
        (200, [*quick(0, 1_000, 200), *quick(60_000, 60_200, 200)], [(60_000, 100, "quick")]),
        # a flush every tick, as with pace=key
        (200, [flush(at) for at in range(0, 10_041, 10)], []),
        (200, [flush(at) for at in range(0, 10_101, 10)], [(10_080, 100, "quick")]),
    ],
)
def test_when_it_becomes_shorter(
    interval_ms: int, seen: list[Observation], expected: list[object]
) -> None:
    assert moves(*seen, interval_ms=interval_ms) == expected


@rule("auto-2")
def test_a_round_trip_is_not_the_reader_s_fault() -> None:
    # rule auto-2: the drain is counted without it
    far = [
        each
        for at in range(0, 20_001, 500)
        for each in (flush(at, round_trip_ns=300 * MS), look(at + 340, round_trip_ns=300 * MS))
    ]
    assert moves(*far, interval_ms=500) == [(10_000, 200, "quick")]


@rule("auto-1")
def test_it_stays_within_its_bounds() -> None:
    # rule auto-1
    bounds = Auto(100 * MS, 200 * MS)
    late = [full(at, 9_000) for at in range(100, 2_000, 100)]
    assert moves(flush(0), *late, interval_ms=100, bounds=bounds) == [(200, 200, "full")]
    calm = quick(0, 100_000, 200)
    assert moves(*calm, interval_ms=200, bounds=bounds) == [(10_000, 100, "quick")]


@rule("auto-4")
def test_a_step_back_that_fails_is_tried_again_ever_later() -> None:
    # rule auto-4
    state, at_ms, waits = State(BOUNDS, 200 * MS), 0, []
    for _ in range(5):
        began = at_ms
        decisions: list[Decision] = []
        while not decisions:
            state, decisions = played(state, *quick(at_ms, at_ms, 200))
            at_ms += 200
        waits.append((at_ms - 200 - began) // 1_000)
        tried = at_ms - 200
        seen = [flush(tried + 100, 900), flush(tried + 200, 1_800)]
        state, [failed] = played(state, *seen)
        assert (failed.from_ns, failed.to_ns) == (100 * MS, 200 * MS)
        state, at_ms = state._replace(round=None), tried + 400
    assert waits == [10, 60, 120, 240, 300]


@rule("auto-4")
def test_a_step_back_that_lasts_makes_up_for_failures() -> None:
    # rule auto-4
    failed_twice = State(BOUNDS, 500 * MS, calm_needed_ns=120 * SECOND)
    state, [back] = played(failed_twice, *quick(0, 120_000, 500))
    assert (back.to_ns, state.calm_needed_ns) == (200 * MS, 120 * SECOND)
    state, [again] = played(state, *quick(120_200, 240_200, 200))
    assert (again.to_ns, state.calm_needed_ns) == (100 * MS, 120 * SECOND)
    state, [last] = played(state, *quick(240_300, 540_300, 100))
    assert (last.at // MS, state.calm_needed_ns) == (360_300, 120 * SECOND)
    lasting = state._replace(stepped_back=240_300 * MS)
    state, decisions = played(lasting, *quick(540_300, 540_400, 50))
    assert (decisions, state.calm_needed_ns) == ([], 10 * SECOND)


@rule("auto-5")
def test_a_decision_has_its_figures() -> None:
    # rule auto-5
    _, [up] = played(State(BOUNDS, 50 * MS), flush(0), flush(50, 900), flush(100, 1_800))
    assert up.figures == Figures(FLUSH, 1_800, 1_800, 100 * MS, late_rounds=2, calm_ns=0)
    _, [back] = played(State(BOUNDS, 200 * MS), *quick(0, 10_000, 200))
    assert back.figures == Figures(FLUSH, 0, 0, 1 * MS, late_rounds=0, calm_ns=10 * SECOND)
    assert back == Decision(10 * SECOND, 200 * MS, 100 * MS, Reason.QUICK, back.figures)


def test_when_to_look() -> None:
    state = State(BOUNDS, 200 * MS)
    assert state.observation_due(0, 0) is None
    state, _ = step(state, flush(0))
    # early enough to see that half of 100 ms would have been enough, then after the round's end
    assert state.observation_due(0, 0) == 40 * MS
    assert state.observation_due(0, 30 * MS) == 70 * MS
    state, _ = step(state, look(40, 10))
    assert state.observation_due(40 * MS, 0) == 220 * MS
    state, _ = step(state, look(220, 10))
    assert state.observation_due(220 * MS, 0) == 440 * MS
    state, _ = step(state, look(440))
    assert state.observation_due(440 * MS, 0) is None


def test_at_the_ends_of_the_ladder_there_is_less_to_see() -> None:
    state, _ = step(State(BOUNDS, 50 * MS), flush(0))
    assert state.observation_due(0, 0) == 55 * MS
    state, _ = step(State(BOUNDS, 30 * SECOND), flush(0))
    assert state.observation_due(4_000 * MS, 0) is None


def test_what_was_acknowledged_needs_no_further_look() -> None:
    state, _ = played(State(BOUNDS, 200 * MS), flush(0), look(40))
    assert state.observation_due(40 * MS, 0) is None


# The steps within bounds: the lower bound is rounded up, the upper down.


def ns(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)


@pytest.mark.parametrize(
    ("bound", "not_below", "not_above"),
    [
        ("1ms", "50ms", None),
        ("50ms", "50ms", "50ms"),
        ("51ms", "100ms", "50ms"),
        ("3s", "5s", "2s"),
        ("30s", "30s", "30s"),
        ("1d", None, "30s"),
    ],
)
def test_a_bound_is_rounded_inwards(
    bound: str, not_below: str | None, not_above: str | None
) -> None:
    assert step_not_below(parse_duration(bound)) == ns(not_below)
    assert step_not_above(parse_duration(bound)) == ns(not_above)


def test_steps_between_two_bounds() -> None:
    first, last = STEPS_NS[0], STEPS_NS[-1]
    assert auto_within(1, last * 9, None) == Auto(first, last)
    assert auto_within(STEPS_NS[3], STEPS_NS[3], None) == Auto(STEPS_NS[3], STEPS_NS[3])
    assert auto_within(STEPS_NS[3] + 1, STEPS_NS[4] - 1, None) is None
    assert auto_within(last + 1, last * 9, None) is None
    assert auto_within(1, first - 1, None) is None


def test_a_promised_age_is_the_upper_bound_where_none_is_given() -> None:
    assert auto_within(None, None, None) == Auto(STEPS_NS[0], STEPS_NS[-1])
    assert auto_within(None, None, STEPS_NS[2]) == Auto(STEPS_NS[0], STEPS_NS[2])
    assert auto_within(None, STEPS_NS[4], STEPS_NS[2]) == Auto(STEPS_NS[0], STEPS_NS[4])


# Whether bytes are on their way or overdue follows from when they were written.

BIG = 1_000 - FRAMING_BYTES


def observed(
    in_flight: InFlight, at_ms: int, unsent_bytes: int, *, round_trip_ns: int = 0
) -> Observation:
    """A look at the socket, for an interval of 50 ms."""
    in_flight.left(unsent_bytes)
    return in_flight.observed(at_ms * MS, 50 * MS, round_trip_ns=round_trip_ns)


def written(*times_ms: int) -> InFlight:
    """A thousand bytes at each of these times."""
    in_flight = InFlight()
    for at in times_ms:
        in_flight.wrote(at * MS, BIG)
    return in_flight


def test_nothing_is_unacknowledged_before_the_socket_was_asked() -> None:
    seen = InFlight().observed(20 * MS, 50 * MS)
    assert (seen.unsent_bytes, seen.overdue_bytes, seen.unsent_since) == (0, 0, None)


def test_what_is_acknowledged_is_in_flight_no_more() -> None:
    seen = observed(written(0, 10), 20, 0)
    assert (seen.unsent_bytes, seen.overdue_bytes, seen.unsent_since) == (0, 0, None)


@rule("auto-2")
def test_the_oldest_write_that_is_not_wholly_acknowledged() -> None:
    # rule auto-2
    in_flight = written(1, 10, 20)
    seen = [observed(in_flight, 30, left) for left in (3_000, 2_001, 2_000, 1, 0)]
    since = [None if each.unsent_since is None else each.unsent_since // MS for each in seen]
    assert since == [1, 1, 10, 20, None]


def test_overdue_is_what_is_older_than_the_interval() -> None:
    # a flush is written a little before its time now and then, so a tenth of that is forgiven
    in_flight = written(0, 50, 100)
    overdue = [observed(in_flight, at, 3_000).overdue_bytes for at in (100, 144, 145)]
    assert overdue == [2_000, 2_000, 3_000]


def test_a_long_line_has_twice_its_round_trip() -> None:
    in_flight = written(0, 50, 100)
    for at, overdue_bytes in ((100, 0), (244, 0), (245, 1_000), (295, 2_000), (400, 3_000)):
        seen = observed(in_flight, at, 3_000, round_trip_ns=100 * MS)
        assert (at, seen.overdue_bytes) == (at, overdue_bytes)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9_999)), max_size=20),
    acknowledged=st.floats(0, 1),
)
def test_the_figures_fit_together(sizes: list[tuple[int, int]], acknowledged: float) -> None:
    in_flight, now, total_bytes = InFlight(), 0, 0
    for pause_ms, size_bytes in sizes:
        now += pause_ms * MS
        in_flight.wrote(now, size_bytes)
        total_bytes += size_bytes
    unsent_bytes = int(total_bytes * acknowledged)
    seen = observed(in_flight, now // MS, unsent_bytes)
    assert 0 <= seen.overdue_bytes <= unsent_bytes
    assert (seen.unsent_since is None) == (unsent_bytes == 0)
    assert seen.unsent_since is None or seen.unsent_since <= now
