"""The simulated market is the same in every run, and looks like one."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from tidegate.app.demo.market import OPENING_MS, PER_SECOND, TICKERS, Market


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
