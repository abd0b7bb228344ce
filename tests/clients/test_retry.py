"""Pauses between attempts, the end of all attempts, and outages."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.clients.errors import GatewayProblem, GatewayUnreachable, StreamLost
from tidegate.clients.retry import Backoff, Outage, Retry, doubled_s


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


def test_whatever_the_outage_the_next_attempt_is_near() -> None:
    backoff = Backoff(chance=longest)
    assert max(backoff.wait_s() for _ in range(90)) == 5


def test_a_thousand_failures_are_no_overflow() -> None:
    backoff = Backoff(1.0, 10.0)
    assert all(0 <= backoff.wait_s() <= 10 for _ in range(1100))


def test_the_jitter_is_full() -> None:
    waits = {Backoff(1.0, 10.0).wait_s() for _ in range(50)}
    assert len(waits) > 40
    assert min(waits) < 0.5 < max(waits)


@rule("pipeline-9")
def test_pauses_of_streams_double_from_a_second_to_a_minute() -> None:
    found = [doubled_s(failures, 1, 60) for failures in range(1, 10)]
    assert found == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert doubled_s(100_000, 1, 60) == 60


class Attempts:
    """Raises these failures, then answers; each wait is the longest allowed and moves the clock."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.waits_s: list[float] = []
        self.reported: list[str] = []

    def ask(self) -> str:
        if self.failures:
            raise self.failures.pop(0)
        return "here"

    def run(self, seconds_max: float = 60.0, *, passes: bool = True) -> str:
        retry = Retry(
            seconds_max,
            on_retry=lambda error: self.reported.append(str(error)),
            pause=self.waits_s.append,
            clock=lambda: sum(self.waits_s),
            chance=longest,
        )
        return retry.call(self.ask, lambda error: passes and isinstance(error, GatewayUnreachable))


LOST = GatewayUnreachable("lost")


def test_a_failure_is_reported_once_and_retried_after_growing_pauses() -> None:
    attempts = Attempts(*[LOST] * 6)
    assert attempts.run() == "here"
    assert attempts.waits_s == [0.25, 0.5, 1, 2, 2, 2]
    assert attempts.reported == ["lost"]


def test_a_pause_is_as_long_as_the_gateway_asked_for() -> None:
    out = GatewayUnreachable("out")
    out.retry_after_s = 3.0  # type: ignore[attr-defined] # as the transport sets it
    attempts = Attempts(out, LOST)
    assert attempts.run() == "here"
    assert attempts.waits_s == [3.25, 0.5]
    asked = Attempts(out)
    with pytest.raises(GatewayUnreachable, match="out"):
        asked.run(3.0)
    assert (asked.waits_s, asked.reported) == ([], [])


def test_it_ends_with_the_last_failure_before_time_is_up() -> None:
    attempts = Attempts(*[LOST] * 500)
    with pytest.raises(GatewayUnreachable, match="lost"):
        attempts.run(5.0)
    assert 3.0 < sum(attempts.waits_s) < 5.0


@pytest.mark.parametrize(
    ("failure", "seconds_max", "passes"),
    [
        (LOST, 60.0, False),
        (LOST, 0.0, True),
        (GatewayProblem(409, "idempotency-conflict", "Used"), 60.0, True),
    ],
)
def test_what_does_not_pass_is_raised_at_once(
    failure: Exception, seconds_max: float, passes: bool
) -> None:
    attempts = Attempts(failure)
    with pytest.raises(type(failure)):
        attempts.run(seconds_max, passes=passes)
    assert (attempts.waits_s, attempts.reported) == ([], [])


def test_what_a_pause_raises_ends_the_waiting() -> None:
    def stopped(seconds: float) -> None:
        raise KeyboardInterrupt

    attempts = Attempts(LOST)
    with pytest.raises(KeyboardInterrupt):
        Retry(60.0, pause=stopped).call(attempts.ask, lambda error: True)


BUSY = GatewayProblem(503, "bus-unavailable", "The bus is out")


def test_each_kind_of_failure_is_reported_once_an_outage() -> None:
    reported: list[str] = []
    outage = Outage(reported.append)
    refused, cut = GatewayUnreachable("Cannot reach: refused"), GatewayUnreachable("cut")
    for _ in range(2):
        for error in (StreamLost("the stream ended"), refused, cut, BUSY, refused, BUSY):
            outage.record(error)
            assert outage.error is error
        outage.end()
        assert outage.error is None
    assert reported == ["the stream ended", "Cannot reach: refused", str(BUSY)] * 2


@pytest.mark.parametrize(
    "error",
    [
        GatewayProblem(403, "forbidden", "No"),
        GatewayProblem(413, "http-413", "No"),
        GatewayProblem(410, "bookmark-expired", "No"),
    ],
    ids=lambda error: str(error.code),
)
def test_a_hopeless_failure_is_raised_and_not_reported(error: GatewayProblem) -> None:
    reported: list[str] = []
    with pytest.raises(GatewayProblem) as raised:
        Outage(reported.append).record(error)
    assert (raised.value, reported) == (error, [])


@pytest.mark.parametrize("code", ["topic-unknown", "options-invalid", "filter-invalid"])
def test_a_refusal_by_what_the_topic_is_belongs_to_the_outage(code: str) -> None:
    reported: list[str] = []
    outage = Outage(reported.append)
    refusal = GatewayProblem(400, code, "No", "oof needs a topic with a key.")
    for error in (BUSY, refusal, refusal):
        outage.record(error)
    assert outage.error is refusal
    assert reported == [str(BUSY), f"No [{code}]: oof needs a topic with a key."]
