"""Recorded messages go at their speed, under a clock that the story turns."""

from __future__ import annotations

import pytest

from tidegate.keys.text.rate import Rate, parse_rate
from tidegate.pipeline.archive.recorded import Recorded, RecordedPlace, Spot
from tidegate.pipeline.archive.replaying import BURST_S, MESSAGES_PER_REQUEST, Pacing, requests


class Turned:
    """A clock that stands still until somebody waits."""

    def __init__(self, stops_s: float | None = None) -> None:
        self._now_s = 100.0
        self._stops_s = stops_s

    def now_s(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        self._now_s += seconds

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds

    @property
    def stopped(self) -> bool:
        return self._stops_s is not None and self._now_s >= 100.0 + self._stops_s


def recorded(*times_ms: int, size: int = 10) -> list[Recorded]:
    return [
        Recorded(Spot("f", "line", at), RecordedPlace("e1", at), time_ms, None, b"x" * size)
        for at, time_ms in enumerate(times_ms)
    ]


def sent(
    messages: list[Recorded],
    rate: str | None,
    gap_s_max: float | None = None,
    clock: Turned | None = None,
) -> list[tuple[float, int]]:
    """When each request went, in seconds from the start, and how many messages it had."""
    clock = clock or Turned()
    parsed: Rate | None = None if rate is None else parse_rate(rate)
    pacing = Pacing(parsed, gap_s_max, clock.now_s())
    return [
        (round(clock.now_s() - 100, 3), len(request))
        for request in requests(messages, pacing, clock)
    ]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("1x", [(0, 1), (1, 1), (61, 1)]),
        ("10x", [(0, 1), (0.1, 1), (6.1, 1)]),
        (".5X", [(0, 1), (2, 1), (122, 1)]),
        ("1", [(0, 1), (1, 1), (2, 1)]),
        ("10KB", [(0, 1), (1, 1), (2, 1)]),
    ],
)
def test_each_message_goes_when_it_is_due(rate: str, expected: list[tuple[float, int]]) -> None:
    messages = recorded(5_000, 6_000, 66_000, size=10_000)
    assert sent(messages, rate) == expected


def test_a_silence_is_bounded() -> None:
    assert sent(recorded(0, 1_000, 3_600_000), "1x", 2.0) == [(0, 1), (1, 1), (3, 1)]


def test_what_is_due_within_a_tick_shares_a_request() -> None:
    assert sent(recorded(*range(100)), "1x") == [
        (0, 1),
        (0.02, 20),
        (0.04, 20),
        (0.06, 20),
        (0.08, 20),
        (0.1, 19),
    ]


def test_without_a_rate_all_goes_at_once_in_full_requests() -> None:
    messages = recorded(*range(2 * MESSAGES_PER_REQUEST + 1))
    assert sent(messages, None) == [(0, MESSAGES_PER_REQUEST)] * 2 + [(0, 1)]


def test_large_messages_make_short_requests() -> None:
    assert sent(recorded(0, 0, 0, size=3 << 20), None) == [(0, 2), (0, 1)]


def test_who_was_held_up_makes_up_for_a_second_and_no_more() -> None:
    clock = Turned()
    pacing = Pacing(parse_rate("1x"), None, clock.now_s())
    went: list[float] = []
    for request in requests(recorded(*range(0, 10_000, 1_000)), pacing, clock):
        went.append(round(clock.now_s() - 100, 3))
        if len(went) == 1:
            clock.sleep(5)  # the gateway was out
        assert request
    assert BURST_S == 1
    assert went == [0, 5, 6, 7, 8, 9, 10, 11, 12]


def test_a_stop_ends_it_after_what_was_given_out() -> None:
    assert sent(recorded(0, 1_000, 9_000), "1x", clock=Turned(stops_s=2)) == [(0, 1), (1, 1)]
