"""The simulated market, this machine's figures, and the threads that publish them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

import msgspec
import psutil
import pytest

from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tidegate.app.cli.demo.feeds import (
    OPENING_MS,
    PER_SECOND,
    PROGRAMS_MAX,
    TICKERS,
    Feed,
    MachineFigures,
    Market,
    beats,
    machine_feed,
    market_feed,
)
from tidegate.clients.gateway import Gateway


def test_the_same_seed_gives_the_same_messages() -> None:
    assert list(islice(Market(7).quotes(), 500)) == list(islice(Market(7).quotes(), 500))
    assert list(islice(Market(7).quotes(), 9)) != list(islice(Market(8).quotes(), 9))


def test_prices_hang_together() -> None:
    quotes = list(islice(Market().quotes(), 20_000))
    assert all(0 < quote.bid <= quote.price <= quote.ask for quote in quotes)
    assert {quote.type for quote in quotes} == {"quote", "trade"}
    last: dict[str, float] = {}
    for quote in quotes:
        before = last.setdefault(quote.tickerId, quote.price)
        assert abs(quote.price - before) <= before * 0.01 + 0.01
        last[quote.tickerId] = quote.price


def test_every_ticker_moves_and_some_move_much_more_often() -> None:
    often = Counter(quote.tickerId for quote in islice(Market().quotes(), 20_000))
    assert set(often) == set(TICKERS)
    assert max(often.values()) > 10 * min(often.values())


def test_its_clock_follows_the_count() -> None:
    quotes = list(islice(Market().quotes(), 2 * PER_SECOND))
    assert quotes[PER_SECOND - 1].ts == OPENING_MS + 1000
    assert quotes[-1].ts == OPENING_MS + 2000


def test_each_figure_has_a_key_of_its_own() -> None:
    figures = MachineFigures().read()
    names = [(figure.kind, figure.name) for figure in figures]
    assert len(set(names)) == len(names)
    kinds = {kind for kind, _ in names}
    assert {"core", "memory", "network", "program"} <= kinds
    assert len([kind for kind, _ in names if kind == "core"]) == psutil.cpu_count()
    assert len([kind for kind, _ in names if kind == "program"]) <= PROGRAMS_MAX


def test_rates_are_of_what_was_counted_meanwhile() -> None:
    machine = MachineFigures()
    machine.read()
    for figure in machine.read():
        if figure.kind == "network":
            assert figure.in_bytes_s is not None
            assert figure.in_bytes_s >= 0


def test_a_message_leaves_out_what_it_does_not_have() -> None:
    memory = next(figure for figure in MachineFigures().read() if figure.kind == "memory")
    shown = msgspec.json.decode(msgspec.json.encode(memory))
    assert set(shown) == {"kind", "name", "percent", "used_bytes"}
    assert shown["used_bytes"] > 0


def awaited(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_what_it_counts_is_what_the_gateway_has() -> None:
    with serving_here() as address, Gateway(address) as gateway:
        feeds = [market_feed(), machine_feed()]
        for feed in feeds:
            feed.start(address)
        awaited(lambda: all(feed.delivered for feed in feeds))
        for feed in feeds:
            feed.stop()
            feed.join(HANGS_S)
            assert gateway.topic(feed.topic)["messages_in"] == feed.delivered
            assert feed.trouble == ""


def test_an_outage_is_reported_and_retried() -> None:
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
    monkeypatch.setattr("tidegate.app.cli.demo.feeds.time", stopping)
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
