"""What a command tells of itself, and how it waits."""

from __future__ import annotations

import pytest

from pipeline.archive.progress import Progress, Stopped, ToldWaiting
from pipeline.errors import GatewayUnreachable
from pipeline.operations.lines import PROGRESS_EVERY_S
from pipeline.operations.stop import Stop
from pipeline.patience import Trouble, patiently
from tests.pipeline.archive.test_pacing import Turned


def test_a_line_comes_now_and_then_and_never_twice_in_a_row() -> None:
    clock, told, lines = Turned(), list[str](), iter(["a", "a", "b"])
    progress = Progress(told.append, clock.now_s)
    for waits_s in (1.0, PROGRESS_EVERY_S, PROGRESS_EVERY_S, PROGRESS_EVERY_S):
        clock.wait(waits_s)
        progress.look(lambda: next(lines))
    assert told == ["a", "b"]
    progress.say("b")
    progress.say("c")
    assert told == ["a", "b", "c"]


def test_an_outage_is_told_at_once_and_how_long_it_is_borne() -> None:
    stop, told = Stop(), list[str]()
    calls = 0

    def ask() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise Trouble(GatewayUnreachable("nobody is there"))
        return "here"

    class Passing(ToldWaiting):
        def pause(self, seconds: float) -> None:
            super().pause(0)

    for outage in (1, 2):
        calls = 0
        assert patiently(ask, 60.0, Passing(stop, told.append)) == "here"
        assert told == ["nobody is there; trying again for 60 s"] * outage


def test_whoever_waits_is_woken_by_a_signal() -> None:
    stop, told = Stop(), list[str]()

    def ask() -> None:
        stop.ask()
        raise Trouble(GatewayUnreachable("nobody is there"))

    with pytest.raises(Stopped):
        patiently(ask, 60.0, ToldWaiting(stop, told.append))
    assert len(told) == 1
