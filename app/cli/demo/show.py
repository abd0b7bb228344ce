"""The run of the demo: starts and ends the gateway, the feeds and Spark together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from types import FrameType

from fastapi import FastAPI

from tidegate.app.cli.demo.feeds import MACHINE_TOPIC, MARKET_TOPIC, machine_feed, market_feed
from tidegate.app.cli.demo.spark import SPARK_TOPIC, Launch, SparkChild
from tidegate.app.http.transport.listener import base_url
from tidegate.app.settings.settings import Settings
from tidegate.clients.errors import GatewayError
from tidegate.clients.gateway import Gateway

EXIT_DELIVERED = 0
EXIT_MISSING = 1
EXIT_INTERRUPTED = 130
POLL_EVERY_S = 0.25
# Ctrl-C ends the demo within five seconds in all, so each part has its share.
FEED_END_S_MAX = 1.0
START_S_MAX = 20.0
SPARK_START_S_MAX = 90.0

PrintLine = Callable[[str], None]

TOPICS = {
    MARKET_TOPIC: {
        "key": ["/tickerId"],
        "description": "A simulated market: the newest quote or trade of each ticker",
    },
    MACHINE_TOPIC: {
        "key": ["/kind", "/name"],
        "description": "This machine: cores, memory, networks, and its busiest programs",
    },
}


class Show:
    """One run of the demo.

    Args:
        settings: the gateway's settings.
        listener: its listening socket, so that the address is known before anything runs.
        make_app: builds the gateway's application from the settings.
        spark: how to start the pipeline; None leaves it out.
        seconds_max: how long to run after printing the address; None until a signal.
        emit: prints a line of output.
        note: prints a line for people.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        *,
        make_app: Callable[[Settings], FastAPI],
        spark: Launch | None,
        seconds_max: float | None,
        emit: PrintLine,
        note: PrintLine,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._make_app = make_app
        self._address = base_url(listener, settings)
        self._spark = spark
        self._seconds_max = seconds_max
        self._emit = emit
        self._note = note
        self._feeds = [market_feed(), machine_feed()]
        self._stop = asyncio.Event()
        self._interrupted = False
        self._spark_failure = ""

    def run(self) -> int:
        """Run to the end, print what was delivered, and return the exit code."""
        # Until the loop handles signals, SIGTERM must unwind this function, so that Spark ends too.
        signal.signal(signal.SIGTERM, _unwind)
        with contextlib.ExitStack() as held:
            # Spark starts slowest, so it starts first; it waits for the gateway.
            child = None
            if self._spark is not None:
                child = held.enter_context(SparkChild(self._spark, self._address))
            delivered = asyncio.run(self._show(child))
        self._emit("Delivered: " + "; ".join(_summary(name, n) for name, n in delivered.items()))
        if self._interrupted:
            return EXIT_INTERRUPTED
        return EXIT_DELIVERED if all(delivered.values()) else EXIT_MISSING

    async def _show(self, child: SparkChild | None) -> dict[str, int]:
        self._take_signals()
        async with self._gateway():
            # In a thread: the client blocks, and this loop is what has to answer it.
            await asyncio.to_thread(self._create_topics)
            for feed in self._feeds:
                feed.start(self._address)
            # Only a run with an end waits: a person can look at the page while Spark starts.
            if child is not None and self._seconds_max is not None:
                self._note("Waiting for Spark to begin, which takes some 20 seconds.")
                await asyncio.to_thread(self._await_spark, child)
            self._emit(f"Tidegate listens on {self._address}")
            self._note(self._instructions())
            await self._wait(child)
            return await asyncio.to_thread(self._finish, child)

    @contextlib.asynccontextmanager
    async def _gateway(self) -> AsyncIterator[None]:
        """Run the gateway in this loop; streams get a goodbye at the end."""
        from tidegate.app.http.server import Server
        from tidegate.app.logs import configure_logging

        configure_logging(self._settings.log_level, self._settings.log_format)
        app = self._make_app(self._settings)
        server = Server(
            app,
            self._settings,
            on_shutdown=app.state.gateway.say_goodbye,
            # A signal ends the feeds and Spark first, while the gateway still answers them.
            takes_signals=False,
        )
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        # A gateway that ends by itself ends the demo, too.
        serving.add_done_callback(lambda _: self._stop.set())
        try:
            yield
        finally:
            server.stop()
            await serving

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        self._interrupted = self._interrupted or number == signal.SIGINT
        self._stop.set()

    def _create_topics(self) -> None:
        with Gateway(self._address, answer_seconds_max=START_S_MAX) as gateway:
            for topic, definition in TOPICS.items():
                gateway.put_topic(topic, definition)

    def _await_spark(self, child: SparkChild) -> None:
        """Wait until Spark has delivered, so that a short demo does not end before that."""
        give_up_at = time.monotonic() + SPARK_START_S_MAX
        while not (self._stop.is_set() or child.failure() or time.monotonic() > give_up_at):
            if self._committed(SPARK_TOPIC):
                return
            time.sleep(POLL_EVERY_S)

    async def _wait(self, child: SparkChild | None) -> None:
        """Wait for the end of the time or a signal; report a failure of Spark at once."""
        loop = asyncio.get_running_loop()
        ends_at = None if self._seconds_max is None else loop.time() + self._seconds_max
        while not self._stop.is_set() and (ends_at is None or loop.time() < ends_at):
            if child is not None and not self._spark_failure:
                self._spark_failure = child.failure()
                if self._spark_failure:
                    self._note(self._spark_failure)
            wait_s = POLL_EVERY_S if ends_at is None else min(POLL_EVERY_S, ends_at - loop.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), max(0.0, wait_s))

    def _finish(self, child: SparkChild | None) -> dict[str, int]:
        """End the feeds and Spark while the gateway still answers; return the messages of each."""
        for feed in self._feeds:
            feed.stop()
        if child is not None:
            child.stop()
        for feed in self._feeds:
            feed.join(FEED_END_S_MAX)
            if feed.trouble:
                self._note(f"{feed.topic}: {feed.trouble}")
        delivered = {feed.topic: feed.delivered for feed in self._feeds}
        if child is not None:
            delivered[SPARK_TOPIC] = self._committed(SPARK_TOPIC)
        return delivered

    def _committed(self, topic: str) -> int:
        """Return the number of messages that a topic has received."""
        with Gateway(self._address, answer_seconds_max=1.0) as gateway:
            try:
                # The gateway's count, not Spark's: only committed messages were delivered.
                return int(gateway.topic(topic)["messages_in"])
            except (GatewayError, KeyError):
                return 0

    def _instructions(self) -> str:
        ends = (
            "Ctrl-C ends it." if self._seconds_max is None else f"Ends in {self._seconds_max:g} s."
        )
        spark = "" if self._spark is None else f" Spark fills {SPARK_TOPIC} in some 20 seconds."
        return f"Open it in a browser; nothing is kept.{spark} {ends}"


def _unwind(number: int, frame: FrameType | None) -> None:
    raise SystemExit(EXIT_DELIVERED)


def _summary(topic: str, messages: int) -> str:
    return f"{topic}{' (Spark)' * (topic == SPARK_TOPIC)} {messages:,}"
