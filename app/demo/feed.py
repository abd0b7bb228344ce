"""A feed: a thread that publishes the messages of a source at a fixed interval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from tidegate.app.demo.machine import EVERY_S, Machine
from tidegate.app.demo.market import MARKET_TOPIC, PER_SECOND, Market
from tidegate.clients.errors import GatewayError
from tidegate.clients.gateway import Gateway

MACHINE_TOPIC = "machine"
MARKET_EVERY_S = 0.05
BEHIND_S_MAX = 1.0

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
    return Feed(MACHINE_TOPIC, Machine().read, EVERY_S)
