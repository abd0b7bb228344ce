"""A feed publishes what its source has, survives an outage, and ends when told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.support.commands import serving
from tests.support.deadlines import HANGS_S
from tidegate.app.demo.feed import Feed, beats, machine_feed, market_feed
from tidegate.clients.gateway import Gateway


def awaited(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.slow
def test_what_it_counts_is_what_the_gateway_has() -> None:
    with serving() as address, Gateway(address) as gateway:
        feeds = [market_feed(), machine_feed()]
        for feed in feeds:
            feed.start(address)
        awaited(lambda: all(feed.delivered for feed in feeds))
        for feed in feeds:
            feed.stop()
            feed.join(HANGS_S)
            assert gateway.topic(feed.topic)["messages_in"] == feed.delivered
            assert feed.trouble == ""


def test_an_outage_is_told_and_tried_again() -> None:
    asked: list[int] = []

    def source() -> list[int]:
        asked.append(1)
        return [1]

    feed = Feed("t", source, 0.01)
    feed.start("http://127.0.0.1:1")
    awaited(lambda: len(asked) >= 3 and feed.trouble)
    feed.stop()
    feed.join(HANGS_S)
    assert "Cannot reach" in feed.trouble
    assert feed.delivered == 0


class Waits(threading.Event):
    """An event and a clock: who waits for the one moves the other."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, seconds: float | None = None) -> bool:
        self.now_s += seconds or 0.0
        return self.is_set()


def test_missed_beats_are_made_up_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = Waits()
    monkeypatch.setattr("tidegate.app.demo.feed.time", stopping)
    beat = beats(0.25, stopping)
    next(beat)
    stopping.now_s += 1.5
    waits_s = []
    for _ in range(8):
        before_s = stopping.now_s
        next(beat)
        waits_s.append(stopping.now_s - before_s)
    assert waits_s == [0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 0.25], "a second's, and then in time"
    stopping.set()
    assert list(beat) == []
