from __future__ import annotations

import pytest

from pipeline.errors import GatewayRefused, GatewayUnreachable, PipelineError
from pipeline.patience import AT_ONCE, Trouble, Waiting, patiently


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pauses: list[float] = []
        self.now_s = 0.0
        monkeypatch.setattr("pipeline.patience.time", self)
        monkeypatch.setattr("pipeline.patience.random", self)

    def monotonic(self) -> float:
        return self.now_s

    def uniform(self, low: float, high: float) -> float:
        return high

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(round(pause_s, 3))
        self.now_s += pause_s


def test_pauses_grow_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def ask() -> str:
        if len(clock.pauses) < 8:
            raise Trouble(GatewayUnreachable("out"))
        return "here"

    assert patiently(ask, 60.0) == "here"
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_patience_ends_with_the_last_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def ask() -> None:
        raise Trouble(GatewayUnreachable(f"out at {clock.now_s:.1f}"))

    with pytest.raises(GatewayUnreachable, match=r"out at 1\.5"):
        patiently(ask, 2.0)


def test_who_waits_otherwise_is_told_of_the_first_trouble_of_each_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, told = Clock(monkeypatch), list[str]()

    class Told(Waiting):
        def begins(self, trouble: PipelineError, patience_s: float) -> None:
            told.append(f"{trouble} {patience_s}")

        def pause(self, seconds: float) -> None:
            clock.sleep(seconds * 2)

    def ask() -> str:
        if len(clock.pauses) < 3:
            raise Trouble(GatewayUnreachable(f"out at {clock.now_s:.1f}"))
        return "here"

    assert patiently(ask, 60.0, Told()) == "here"
    assert clock.pauses == [0.2, 0.4, 0.8]
    assert told == ["out at 0.0 60.0"]
    clock.pauses.clear()
    with pytest.raises(GatewayUnreachable):
        patiently(ask, 0.0, Told())
    assert len(told) == 1, "there is nothing to wait for"


def test_whoever_comes_again_by_himself_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def ask() -> None:
        raise Trouble(GatewayUnreachable("out"))

    with pytest.raises(GatewayUnreachable, match=r"^out$"):
        patiently(ask, 60.0, AT_ONCE)
    assert clock.pauses == []


def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def ask() -> None:
        raise GatewayRefused("no")

    with pytest.raises(GatewayRefused):
        patiently(ask, 60.0)
    assert clock.pauses == []
