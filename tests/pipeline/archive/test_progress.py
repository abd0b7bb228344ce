"""What a command tells of itself, and how it waits."""

from __future__ import annotations

import pytest

from tests.pipeline.archive.test_pacing import Turned
from tidegate.clients.errors import GatewayUnreachable
from tidegate.clients.transport import is_temporary
from tidegate.pipeline.archive.progress import Progress, Stopped, told_retry
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.status import PROGRESS_EVERY_S


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
    retry = told_retry(stop, told.append, "http://a")
    calls = 0

    def ask() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise GatewayUnreachable("Cannot reach it: nobody is there")
        return "here"

    for outage in (1, 2):
        calls = 0
        assert retry.call(ask, is_temporary) == "here"
        assert told == ["cannot reach it: nobody is there; trying again for 60 s"] * outage


def test_whoever_waits_is_woken_by_a_signal() -> None:
    stop, told = Stop(), list[str]()

    def ask() -> None:
        stop.ask()
        raise GatewayUnreachable("nobody is there")

    with pytest.raises(Stopped):
        told_retry(stop, told.append, "http://a").call(ask, is_temporary)
    assert len(told) == 1
