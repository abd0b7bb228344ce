"""An outage is told once a kind, and borne for as long as there is hope."""

from __future__ import annotations

import pytest

from tidegate.clients.errors import GatewayError, GatewayProblem, GatewayUnreachable, StreamLost
from tidegate.clients.outage import MISSING_SECONDS_MAX, Outage

MISSING = GatewayProblem(404, "topic-unknown", "There is no such topic")
BUSY = GatewayProblem(503, "bus-unavailable", "The bus is out")


class Clock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_kind_of_trouble_is_told_once_an_outage() -> None:
    told: list[str] = []
    outage = Outage(told.append)
    refused, cut = GatewayUnreachable("Cannot reach: refused"), GatewayUnreachable("cut")
    for _ in range(2):
        for error in (StreamLost("the stream ended"), refused, cut, BUSY, refused, BUSY):
            outage.bear(error)
            assert outage.error is error
        outage.over()
        assert outage.error is None
    assert told == ["the stream ended", "Cannot reach: refused", str(BUSY)] * 2


@pytest.mark.parametrize(
    "error",
    [
        GatewayProblem(400, "options-invalid", "No"),
        GatewayProblem(404, "http-404", "No"),
        GatewayProblem(410, "bookmark-expired", "No"),
    ],
    ids=lambda error: str(error.code),
)
def test_what_is_hopeless_is_raised_and_not_told(error: GatewayProblem) -> None:
    told: list[str] = []
    with pytest.raises(GatewayProblem) as raised:
        Outage(told.append).bear(error)
    assert (raised.value, told) == (error, [])


def test_a_missing_topic_is_waited_for_in_silence_and_then_raised() -> None:
    told: list[str] = []
    clock = Clock()
    outage = Outage(told.append, clock)
    for clock.now_s in (5.0, 5.0 + MISSING_SECONDS_MAX - 0.1):
        outage.bear(MISSING)
    assert outage.shortened_s(30.0) == pytest.approx(0.1)
    clock.now_s += 0.2
    with pytest.raises(GatewayProblem, match="topic-unknown"):
        outage.bear(MISSING)
    assert told == []


@pytest.mark.parametrize(
    "between", [None, BUSY, GatewayUnreachable("away")], ids=["connected", "busy", "away"]
)
def test_the_wait_for_a_topic_begins_anew_after_anything_else(
    between: GatewayError | None,
) -> None:
    clock = Clock()
    outage = Outage(lambda sentence: None, clock)
    outage.bear(MISSING)
    clock.now_s = MISSING_SECONDS_MAX
    if between is None:
        outage.over()
    else:
        outage.bear(between)
    assert outage.shortened_s(30.0) == 30.0
    outage.bear(MISSING)
    assert outage.error is MISSING
