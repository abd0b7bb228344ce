"""Whether bytes are on their way or overdue follows from when they were written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.rules import rule
from tidegate.conflation.auto import FRAMING_BYTES, InFlight, Observation
from tidegate.keys.text.duration import MILLISECOND

MS = MILLISECOND
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
