"""Waits grow with failures, keep their bound, and start over after a success."""

from __future__ import annotations

from clients.backoff import Backoff


def longest(low: float, high: float) -> float:
    assert low == 0.0
    return high


def test_the_bound_doubles_up_to_its_most() -> None:
    backoff = Backoff(1.0, 10.0, chance=longest)
    assert [backoff.wait_s() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_a_success_starts_over() -> None:
    backoff = Backoff(1.0, 10.0, chance=longest)
    assert [backoff.wait_s(), backoff.wait_s()] == [1, 2]
    backoff.succeeded()
    assert backoff.wait_s() == 1


def test_what_the_gateway_asked_for_comes_on_top() -> None:
    assert Backoff(1.0, 10.0, chance=longest).wait_s(asked_s=3.0) == 4


def test_a_thousand_failures_are_no_overflow() -> None:
    backoff = Backoff(1.0, 10.0)
    assert all(0 <= backoff.wait_s() <= 10 for _ in range(1100))


def test_the_jitter_is_full() -> None:
    waits = {Backoff(1.0, 10.0).wait_s() for _ in range(50)}
    assert len(waits) > 40
    assert min(waits) < 0.5 < max(waits)
