"""The demo's feeds: a simulated market and this machine's figures, each published by a thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import psutil

from tidegate.clients.errors import GatewayError
from tidegate.clients.gateway import Gateway

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


PROGRAMS_MAX = 20
EVERY_S = 1.0


class Figure(msgspec.Struct, omit_defaults=True):
    """One message: kind, name and figures; percentages are of one core, rates per second."""

    kind: str
    name: str
    percent: float | None = None
    used_bytes: int | None = None
    in_bytes_s: int | None = None
    out_bytes_s: int | None = None


class MachineFigures:
    """Reads the figures; rates cover the time since the previous read."""

    def __init__(self) -> None:
        self._networks: dict[str, tuple[int, int]] = {}
        self._read_at = time.monotonic()

    def read(self) -> list[Figure]:
        """Read all figures that the system provides."""
        now = time.monotonic()
        elapsed_s, self._read_at = max(now - self._read_at, 1e-3), now
        return [*_cores(), *_memory(), *self._network_rates(elapsed_s), *_programs()]

    def _network_rates(self, elapsed_s: float) -> Iterator[Figure]:
        for name, counted in psutil.net_io_counters(pernic=True).items():
            received, sent = counted.bytes_recv, counted.bytes_sent
            before = self._networks.get(name, (received, sent))
            self._networks[name] = (received, sent)
            yield Figure(
                "network",
                name,
                in_bytes_s=round(max(0, received - before[0]) / elapsed_s),
                out_bytes_s=round(max(0, sent - before[1]) / elapsed_s),
            )


def _cores() -> Iterator[Figure]:
    for number, percent in enumerate(psutil.cpu_percent(percpu=True)):
        yield Figure("core", f"core {number}", percent=percent)


def _memory() -> Iterator[Figure]:
    memory, swap, disk = psutil.virtual_memory(), psutil.swap_memory(), psutil.disk_usage("/")
    yield Figure("memory", "memory", percent=memory.percent, used_bytes=memory.used)
    yield Figure("memory", "swap", percent=swap.percent, used_bytes=swap.used)
    yield Figure("disk", "/", percent=disk.percent, used_bytes=disk.used)


def _programs() -> list[Figure]:
    """Return the busiest programs; processes of one name are added up."""
    by_name: dict[str, Figure] = {}
    for program in psutil.process_iter(["name", "cpu_percent", "memory_info"]):
        found = program.info
        name, memory = found["name"] or "(unnamed)", found["memory_info"]
        figure = by_name.setdefault(name, Figure("program", name, percent=0.0, used_bytes=0))
        figure.percent = round((figure.percent or 0.0) + (found["cpu_percent"] or 0.0), 1)
        figure.used_bytes = (figure.used_bytes or 0) + (memory.rss if memory else 0)
    busiest = sorted(by_name.values(), key=lambda figure: figure.percent or 0.0, reverse=True)
    return busiest[:PROGRAMS_MAX]


MACHINE_TOPIC = "machine"
MARKET_EVERY_S = 0.05  # one request for 30 quotes, not 600 requests a second
BEHIND_S_MAX = 1.0  # a feed that is further behind skips the rest instead of a burst

Source = Callable[[], Sequence[object]]


class Feed:
    """Publishes what `source` returns, every `every_s`, until stopped.

    Attributes:
        topic: the topic to publish to.
        delivered: number of messages that the gateway has accepted.
        trouble: the last error; empty after a success.
    """

    def __init__(self, topic: str, source: Source, every_s: float) -> None:
        self.topic = topic
        self.delivered = 0
        self.trouble = ""
        self._source = source
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"feed-{topic}", daemon=True)
        self._address = ""

    def start(self, address: str) -> None:
        """Start to publish to the gateway at `address`."""
        self._address = address
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing; a request in progress still finishes."""
        self._stopping.set()

    def join(self, seconds_max: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(seconds_max)

    def _run(self) -> None:
        encode = msgspec.json.Encoder().encode
        # No retries: the messages are out of date when the next ones are due.
        with Gateway(self._address, answer_seconds_max=5.0, patience_s=0.0) as gateway:
            for _ in beats(self._every_s, self._stopping):
                lines = [encode(message) for message in self._source()]
                try:
                    self.delivered += gateway.publish(self.topic, lines).messages
                    self.trouble = ""
                except GatewayError as error:
                    self.trouble = str(error)


def beats(every_s: float, stopping: threading.Event) -> Iterator[None]:
    """Yield every `every_s` until stopped; catch up on missed times, within a limit."""
    due_at = time.monotonic()
    while not stopping.wait(max(0.0, due_at - time.monotonic())):
        yield
        due_at = max(due_at + every_s, time.monotonic() - BEHIND_S_MAX)


def market_feed() -> Feed:
    """Return a feed of the simulated market, a few hundred messages a second."""
    quotes = Market().quotes()
    each_time = round(PER_SECOND * MARKET_EVERY_S)
    return Feed(MARKET_TOPIC, lambda: [next(quotes) for _ in range(each_time)], MARKET_EVERY_S)


def machine_feed() -> Feed:
    """Return a feed of this machine's figures, once a second."""
    return Feed(MACHINE_TOPIC, MachineFigures().read, EVERY_S)
