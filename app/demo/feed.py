"""A feed: a thread that publishes what a source has, at the source's own pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from app.demo.machine import EVERY_S, Machine
from app.demo.market import PER_SECOND, Market
from clients.errors import GatewayError
from clients.gateway import Gateway

MARKET_TOPIC = "market"
MACHINE_TOPIC = "machine"
MARKET_EVERY_S = 0.05
BEHIND_S_MAX = 1.0

Source = Callable[[], Sequence[object]]


class Feed:
    """Publishes what `source` gives, every `every_s`, until told to stop.

    Attributes:
        topic: where to.
        delivered: messages that the gateway has taken.
        trouble: the last error's line; empty while all is well.
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
        """Begin to publish to the gateway at `address`."""
        self._address = address
        self._thread.start()

    def stop(self) -> None:
        """Publish nothing more; what is on its way may still arrive."""
        self._stopping.set()

    def join(self, seconds_max: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(seconds_max)

    def _run(self) -> None:
        encode = msgspec.json.Encoder().encode
        # What could not be published is old by the next beat: nothing is sent again.
        with Gateway(self._address, answer_seconds_max=5.0, patience_s=0.0) as gateway:
            for _ in beats(self._every_s, self._stopping):
                lines = [encode(message) for message in self._source()]
                try:
                    self.delivered += gateway.publish(self.topic, lines).messages
                    self.trouble = ""
                except GatewayError as error:
                    self.trouble = str(error)


def beats(every_s: float, stopping: threading.Event) -> Iterator[None]:
    """One beat every `every_s` until stopped; missed ones are made up for, within reason."""
    due_at = time.monotonic()
    while not stopping.wait(max(0.0, due_at - time.monotonic())):
        yield
        due_at = max(due_at + every_s, time.monotonic() - BEHIND_S_MAX)


def market_feed() -> Feed:
    """The simulated market, a few hundred messages a second."""
    quotes = Market().quotes()
    each_time = round(PER_SECOND * MARKET_EVERY_S)
    return Feed(MARKET_TOPIC, lambda: [next(quotes) for _ in range(each_time)], MARKET_EVERY_S)


def machine_feed() -> Feed:
    """This machine's figures, once a second."""
    return Feed(MACHINE_TOPIC, Machine().read, EVERY_S)
