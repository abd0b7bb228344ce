"""The pauses of retries."""

from __future__ import annotations

import logging

from tidegate.app.timers import Backoff


def test_pauses_double_up_to_the_longest_with_jitter_and_begin_anew() -> None:
    drawn: list[tuple[float, float]] = []

    def least(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    backoff = Backoff(0.05, 2.0, least)
    assert [backoff.next_s() for _ in range(4)] == [0.025, 0.05, 0.1, 0.2]
    assert [backoff.next_s() for _ in range(2_000)][-1] == 1.0, "an outage may last for days"
    assert set(drawn) == {(0.5, 1.0)}
    backoff.succeeded()
    assert backoff.next_s() == 0.025


async def test_a_constant_pause_has_no_jitter_and_only_the_first_failure_is_loud() -> None:
    backoff = Backoff(0.001)
    levels = []
    for _ in range(3):
        levels.append(backoff.level)
        await backoff.pause()
    assert levels == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert backoff.next_s() == 0.001
    backoff.succeeded()
    assert backoff.level == logging.WARNING
