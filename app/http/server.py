"""uvicorn with our socket and protocol; no frozen client can hold up its shutdown.

Order of a shutdown: stop listening, let every stream send its goodbye, give the sockets a moment to
take it, cut those that did not, then end the application's lifespan.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from tidegate.app.figures import ConnectionFigures, Histogram, LoopFigures
from tidegate.app.gateway import Gateway
from tidegate.app.http.admission import ConnectionLimits, RequestLimits
from tidegate.app.http.protocol import GatewayProtocol, InlineResponder
from tidegate.app.http.transport.certificates import Certificates
from tidegate.app.http.transport.listener import (
    Acceptor,
    ask_for_descriptors,
    base_url,
    connections_that_fit,
    open_listener,
)
from tidegate.app.http.transport.proxies import TrustedProxies
from tidegate.app.http.transport.tls import HANDSHAKES_MAX, tls_factory
from tidegate.app.logs import configure_logging, event
from tidegate.app.memory import MemoryReclaimer, configure_collector
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.connection import WriteWatch
from tidegate.app.streams.scheduler import StreamScheduler

SAMPLE_EVERY_S = 0.5  # each sample wakes an idle gateway, which costs it more than the sample


class LoopLag:
    """Samples, twice a second, how late the event loop calls a timer.

    A block longer than the sampling interval is reported once, minus one interval.
    """

    def __init__(self, lags: Histogram) -> None:
        self._lags = lags
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to sample."""
        loop = asyncio.get_running_loop()
        due = loop.time() + SAMPLE_EVERY_S
        self._next = loop.call_at(due, self._sample, due)

    def stop(self) -> None:
        """Stop sampling."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _sample(self, due: float) -> None:
        self._lags.note(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED_STATUS = 130
# Tasks of closed connections end by themselves; this is the time for those that do not.
TASKS_END_S = 1
POLL_EVERY_S = 0.02

logger = logging.getLogger("tidegate.server")

OnShutdown = Callable[[], Awaitable[None] | None]
OnStarted = Callable[[str], None]
Prepare = Callable[[], Awaitable[None]]


class StartFailed(Exception):
    """The application refused to start; its own log line says why."""


class Server(uvicorn.Server):
    """One gateway process's server.

    Args:
        app: the ASGI application.
        settings: limits and deadlines of connections.
        on_shutdown: called first of all when stopping; makes every stream send `goodbye`.
        on_started: called with the base URL once connections are accepted.
        takes_signals: stop at SIGTERM and SIGINT; off where the loop belongs to someone else.
        on_reload: called at SIGHUP, which reads certificates again as well, and ends nothing.

    Raises:
        SettingsInvalid: the certificate cannot be used.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        *,
        on_shutdown: OnShutdown | None = None,
        on_started: OnStarted | None = None,
        takes_signals: bool = True,
        on_reload: Callable[[], None] | None = None,
    ) -> None:
        self.figures = ConnectionFigures(_connections_max(settings))
        self.certificates = None if settings.tls_cert is None else Certificates(settings)
        hot_path: InlineResponder | None = None
        scheduler: StreamScheduler | None = None
        if isinstance(app, Starlette):
            app.state.figures = self.figures
            hot_path = getattr(app.state, "hot_path", None)
            gateway: Gateway | None = getattr(app.state, "gateway", None)
            scheduler = None if gateway is None else gateway.driver.streams
        scheduler = scheduler or StreamScheduler()
        protocol = protocol_factory(settings, self.figures, hot_path, scheduler)
        super().__init__(_config(app, settings, protocol, self.certificates))
        self._request_limits: RequestLimits = protocol.keywords["request_limits"]
        self.settings = settings
        self.address = ""
        self.stopped_by: signal.Signals | None = None
        self._on_shutdown = on_shutdown
        self._on_started = on_started
        self._takes_signals = takes_signals
        self._on_reload = on_reload
        self._stopping = asyncio.Event()

    def stop(self, stopped_by: signal.Signals | None = None) -> None:
        """Begin to shut down; a second call stops waiting for connections."""
        if self.should_exit:
            self.force_exit = True
        self.stopped_by = self.stopped_by or stopped_by
        self.should_exit = True
        self._stopping.set()

    def reload(self) -> None:
        """Read again what may have changed: the certificate, and what `on_reload` reads."""
        if self.certificates is not None:
            self.certificates.reload()
        if self._on_reload is not None:
            self._on_reload()
        elif self.certificates is None:
            logger.info("SIGHUP: there is nothing to read again", extra=event("nothing-to-reload"))

    def abort_connections(self) -> int:
        """Cut every connection that is left; returns how many."""
        connections = list(self.server_state.connections)
        for connection in connections:
            transport = cast("asyncio.Transport | None", connection.transport)
            if transport is not None:
                transport.abort()
        return len(connections)

    # Called by uvicorn

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application's lifespan, then accept connections.

        Raises:
            StartFailed: the lifespan raised.
        """
        try:
            await super().startup(sockets=sockets)
        except SystemExit:
            raise StartFailed("The application did not start; its log says why.") from None
        for listener in sockets or []:
            self.address = base_url(listener, self.settings)
            if isinstance(listener, Acceptor):
                listener.crowd = self._request_limits.openings.__len__
        figures = event("started", address=self.address, pid=os.getpid())
        logger.info("serving at %s", self.address, extra=figures)
        if self._on_started is not None:
            self._on_started(self.address)

    async def main_loop(self) -> None:
        """Keep the date header fresh until stopped; uvicorn's own loop polls ten times a second."""
        counter = 0
        memory, lag = MemoryReclaimer(), LoopLag(self.figures.loop_lag)
        lag.start()
        while not await self.on_tick(counter):
            memory.check(self.figures.connections, self.figures.ended)
            counter += 10  # uvicorn renews the date at every tenth
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), timeout=1)
        lag.stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say goodbye, wait a moment, cut what is left."""
        for server in self.servers:
            server.close()
        connections = len(self.server_state.connections)
        figures = event("stopping", connections=connections)
        logger.info("stopping with %d connections", connections, extra=figures)
        grace_ends_at = asyncio.get_running_loop().time() + self.settings.shutdown_grace.seconds
        await self._say_goodbye()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._connections_end(grace_ends_at)
        aborted = self.abort_connections()
        if aborted:
            figures = event("connections-cut", connections=aborted)
            logger.warning(
                "%d connections did not end in time and were cut", aborted, extra=figures
            )
        await super().shutdown(sockets=sockets)
        logger.info("stopped", extra=event("stopped"))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal with an exit status of our own; uvicorn would raise the signal again."""
        if not self._takes_signals:
            yield
            return
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        try:
            yield
        finally:
            for number in (*STOP_SIGNALS, signal.SIGHUP):
                loop.remove_signal_handler(number)

    async def _say_goodbye(self) -> None:
        if self._on_shutdown is None:
            return
        try:
            said = self._on_shutdown()
            if inspect.isawaitable(said):
                await asyncio.wait_for(said, self.settings.shutdown_grace.seconds)
        except Exception:
            logger.exception("the streams could not send their goodbye")

    async def _connections_end(self, at: float) -> None:
        now = asyncio.get_running_loop().time
        # uvicorn's set of connections raises no event when it empties.
        while self.server_state.connections and not self.force_exit and now() < at:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(POLL_EVERY_S)


def serve(
    app: ASGIApp,
    settings: Settings,
    *,
    on_shutdown: OnShutdown | None = None,
    on_started: OnStarted | None = None,
    prepare: Prepare | None = None,
    listener: socket.socket | None = None,
    until: int | None = None,
    on_reload: Callable[[], None] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    loop_figures: LoopFigures | None = None,
) -> int:
    """Run the gateway in this thread until a signal.

    `prepare` is awaited before requests; its exceptions are raised here. `listener` replaces our
    own, and is closed at the end. `until`: a file descriptor whose end of file stops the server
    too. `on_reload`: at SIGHUP. `loop_factory`: makes a watched loop, counted in `loop_figures`.

    Returns:
        The exit status: 0 after SIGTERM, 130 after an interrupt.

    Raises:
        CannotListen: the address cannot be had.
        StartFailed: the application refused to start.
        SettingsInvalid: the certificate cannot be used.
    """
    listener = listener or open_listener(settings)
    configure_logging(settings.log_level, settings.log_format)
    ask_for_descriptors(settings.connections_max + _handshakes_max(settings))

    def started(address: str) -> None:
        # Here and not in the server, which tests run many times in one process.
        configure_collector()
        if on_started is not None:
            on_started(address)

    async def run() -> Server:
        server = Server(
            app, settings, on_shutdown=on_shutdown, on_started=started, on_reload=on_reload
        )
        if prepare is not None:
            await prepare()
        server.figures.loop = loop_figures or server.figures.loop
        loop = asyncio.get_running_loop()
        if until is not None:
            loop.add_reader(until, _end, loop, until, server)
        await server.serve(sockets=[listener])
        return server

    with listener, asyncio.Runner(loop_factory=loop_factory) as runner:
        server = runner.run(run())
    return INTERRUPTED_STATUS if server.stopped_by is signal.SIGINT else 0


def _end(loop: asyncio.AbstractEventLoop, until: int, server: Server) -> None:
    loop.remove_reader(until)
    server.stop()


def _config(
    app: ASGIApp,
    settings: Settings,
    protocol: Callable[..., asyncio.Protocol],
    certificates: Certificates | None,
) -> uvicorn.Config:
    """Return every option of uvicorn's: several would otherwise be read from the environment."""
    if certificates is not None:  # a layer of our own around the protocol: uvicorn sees no TLS
        protocol = tls_factory(certificates, protocol, settings.header_deadline.seconds)
    return uvicorn.Config(
        cast("Any", app),
        http=cast("Any", protocol),
        ws="none",
        loop="asyncio",
        lifespan="on",
        interface="asgi3",
        workers=1,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        forwarded_allow_ips="",
        server_header=False,
        date_header=True,
        backlog=settings.backlog,
        timeout_keep_alive=cast("int", settings.keep_alive.seconds),
        timeout_graceful_shutdown=TASKS_END_S,
    )


def _connections_max(settings: Settings) -> int:
    """Return the limit of connections; log a limit that descriptors make lower."""
    handshakes = _handshakes_max(settings)
    fitting = max(1, connections_that_fit(settings.connections_max + handshakes) - handshakes)
    if fitting < settings.connections_max:
        logger.warning("file descriptors allow %d connections at once", fitting)
    return fitting


def _handshakes_max(settings: Settings) -> int:
    return 0 if settings.tls_cert is None else HANDSHAKES_MAX


def protocol_factory(
    settings: Settings,
    figures: ConnectionFigures,
    hot_path: InlineResponder | None,
    scheduler: StreamScheduler,
) -> partial[GatewayProtocol]:
    """Return uvicorn's factory of protocols; all of them share counts and bounds."""
    return partial(
        GatewayProtocol,
        settings=settings,
        figures=figures,
        admission=ConnectionLimits(figures, settings.connections_per_address_max),
        write_watch=WriteWatch(settings.write_timeout.seconds, scheduler),
        request_limits=RequestLimits(),
        proxies=TrustedProxies(settings.trusted_proxies),
        hot_path=hot_path,
    )
