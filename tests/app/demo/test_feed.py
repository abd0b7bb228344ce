"""A feed publishes what its source has, survives an outage, and ends when told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from app.demo.feed import Feed, beats, machine_feed, market_feed
from clients.gateway import Gateway
from tests.support.commands import serving

SOON_S = 30


def awaited(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + SOON_S
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
            feed.join(SOON_S)
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
    feed.join(SOON_S)
    assert "Cannot reach" in feed.trouble
    assert feed.delivered == 0


def test_missed_beats_are_made_up_for_but_not_for_ever() -> None:
    stopping = threading.Event()
    beat = beats(0.05, stopping)
    next(beat)
    time.sleep(0.3)
    started_at = time.monotonic()
    for _ in range(5):
        next(beat)
    assert time.monotonic() - started_at < 0.2
    stopping.set()
    assert list(beat) == []
