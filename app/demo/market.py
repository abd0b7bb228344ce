"""A simulated market: seeded random walks, with the same messages in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

TICKERS = (
    *("AAPL", "AIG", "AMZN", "AXP", "BA", "BAC", "C", "CAT", "CSCO", "CVX", "DIS", "F", "GE", "GM"),
    *("GOOG", "GS", "HD", "HON", "IBM", "INTC", "JNJ", "JPM", "KO", "LMT", "MCD", "MMM", "MRK"),
    *("MSFT", "NKE", "ORCL", "PEP", "PFE", "PG", "QCOM", "SPY", "T", "UPS", "V", "WMT", "XOM"),
)
SEED = 20131008
OPENING_MS = 34_200_000  # half past nine, in milliseconds of the day
MARKET_TOPIC = "market"
PER_SECOND = 600
TRADES = 0.3
STEP = 0.0004  # standard deviation of one step, as a part of the price


class Quote(msgspec.Struct):
    """One message; prices in dollars, `ts` in milliseconds of the simulated day."""

    tickerId: str  # noqa: N815 - as in the recorded ticks
    type: str
    bid: float
    ask: float
    price: float
    size: int
    ts: int


class Market:
    """The messages of a seed; some tickers are busier than others."""

    def __init__(self, seed: int = SEED) -> None:
        self._chance = random.Random(seed)
        self._prices = {ticker: self._chance.uniform(10.0, 400.0) for ticker in TICKERS}
        self._weights = [1.0 / (rank + 2) for rank in range(len(TICKERS))]
        self._chance.shuffle(self._weights)
        self._sent = 0

    def quotes(self) -> Iterator[Quote]:
        """Yield quotes and trades without end, `PER_SECOND` to a simulated second."""
        while True:
            (ticker,) = self._chance.choices(TICKERS, self._weights)
            yield self._next_quote(ticker)

    def _next_quote(self, ticker: str) -> Quote:
        chance, before = self._chance, self._prices[ticker]
        price = max(1.0, before * (1.0 + chance.gauss(0.0, STEP)))
        self._prices[ticker] = price
        spread = price * chance.uniform(0.0001, 0.0006)
        self._sent += 1
        return Quote(
            tickerId=ticker,
            type="trade" if chance.random() < TRADES else "quote",
            bid=round(price - spread, 2),
            ask=round(price + spread, 2),
            price=round(price, 2),
            size=100 * chance.randint(1, 50),
            ts=OPENING_MS + self._sent * 1000 // PER_SECOND,
        )
