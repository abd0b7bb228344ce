"""HTTP/1.1 on one connection: httptools parses, within bounds and deadlines, and ASGI answers.

Headers, bodies, and the time that each may take have bounds. What breaks one is answered with a
problem, and the connection is closed. uvicorn runs this protocol through its option `http`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any, Final, Protocol
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Scope
from uvicorn.config import Config
from uvicorn.server import ServerState

from tidegate.app.figures import ConnectionFigures
from tidegate.app.http.admission import ConnectionLimits, IterationLimit, RequestLimits
from tidegate.app.http.exchange import Exchange
from tidegate.app.http.problems import POLLED, STREAMS
from tidegate.app.http.requests import LONG_POLL, has_ending, live_in
from tidegate.app.http.scope import TRANSPORT_EXTENSION
from tidegate.app.http.transport.proxies import TrustedProxies
from tidegate.app.http.wire import (
    PIPELINE_MAX,
    Stage,
    Stopped,
    check_head,
    check_progress,
    cors_fields,
    headers_too_large,
    problem_bytes,
    without_body,
    without_upgrade,
)
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.connection import Connection, HandedOver, WriteWatch

PROTOCOL_EXTENSION: Final = "tidegate.protocol"
MAPPED: Final = "::ffff:"
ASGI: Final = {"version": "3.0", "spec_version": "2.3"}

# Bytes of an unread body that are kept before reading pauses; more waits in the kernel.
UNREAD_BYTES_MAX: Final = 64 << 10

# After a refusal the client may still be sending. Closing at once would reset the connection and
# lose the answer, so we read on for a moment, within bounds.
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1 << 20
BODY_LINGER_BYTES_MAX: Final = 64 << 20

NOT_VALID: Final = "Not a valid HTTP request."

logger = logging.getLogger("tidegate.http")

HandOver = Callable[[asyncio.Protocol], HandedOver]
"""Gives the connection of a request to a stream."""
RequestKind = tuple[str, bytes]
"""A method, and the end of the paths whose requests may be answered below ASGI."""


class InlineResponder(Protocol):
    """Answers some requests below ASGI, in the iteration in which they arrive.

    A protocol, as the routes that its implementation calls import this module.
    """

    def kind_of(self, exchange: Exchange) -> RequestKind | None:
        """Return the kind of a request that may be answered so, by its header; else None."""

    def wants_body(self, exchange: Exchange, kind: RequestKind) -> bool:
        """Return True if the body of a request is to be kept for `answer`, by its header."""

    def answer(self, exchange: Exchange, kind: RequestKind, hand_over: HandOver) -> bool:
        """Answer a whole request; return False, without effect, where the application has to."""


class Deadline:
    """The time within which a connection must get something done, one at a time."""

    __slots__ = ("_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, passed: Callable[[], object]) -> None:
        """Call `passed` after so many seconds, unless a deadline runs already."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._pass, passed)

    def end(self) -> None:
        """Call nothing: it is done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pass(self, passed: Callable[[], object]) -> None:
        self._timer = None
        passed()


class GatewayProtocol(asyncio.Protocol):
    """One connection, from accept to close.

    Args:
        config: of uvicorn, which has the application.
        server_state: what uvicorn counts: connections, tasks, requests.
        app_state: of the lifespan.
        settings: bounds and deadlines.
        figures: counts connections.
        admission: limits connections.
        write_watch: cuts peers that take nothing.
        request_limits: how many requests begin in an event-loop iteration.
        proxies: trusted to name their clients.
        hot_path: answers some requests below ASGI; None: it answers none.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        settings: Settings,
        figures: ConnectionFigures,
        admission: ConnectionLimits,
        write_watch: WriteWatch,
        request_limits: RequestLimits,
        proxies: TrustedProxies,
        hot_path: InlineResponder | None,
        **_others: object,
    ) -> None:
        if not config.loaded:
            config.load()
        self.settings = settings
        self.write_watch = write_watch
        self._app: ASGIApp = config.loaded_app
        self._state = server_state
        # uvicorn counts connections of its own kinds, and asks these for the same.
        self._connections: set[Any] = server_state.connections
        self._app_state = app_state
        self._figures = figures
        self._limits = admission
        self._request_limits = request_limits
        self._proxies = proxies
        self._hot_path = hot_path
        self._loop = asyncio.get_running_loop()
        self._parser = _new_parser(self)
        self._deadline, self._keep_alive = Deadline(self._loop), Deadline(self._loop)
        self._idle_since_s: float | None = None
        self._silent_bytes = 0  # received since the header began, or a piece of the body came
        self._stage = Stage.IDLE
        self._plain_head: bytes | None = None
        self._is_proxied = self._is_feeding = False
        self._left_to_discard_bytes = 0
        self._is_reading_paused = False
        self._room: asyncio.Event | None = None  # None: the transport has room
        # Of the request that is parsed.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        # The one that is parsed, the one that is answered, and those whose turn comes later.
        self._parsed: Exchange | None = None
        self._running: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._held: tuple[Exchange, RequestKind | None] | None = None
        self._awaits_body = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the accepted connection; its first header's time runs from here."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        self._server = _address(transport.get_extra_info("sockname"))
        self._client = _address(transport.get_extra_info("peername"))
        is_tls = transport.get_extra_info("sslcontext") is not None
        self._scheme = "https" if is_tls else "http"
        transport.set_write_buffer_limits(high=self.settings.write_buffer_bytes_max, low=0)
        self.connection: Connection | None = Connection(transport, self._cut_all, self._figures)
        peer = self._client[0] if self._client else ""
        self._is_proxied = self._proxies.trusts(peer)
        self._limits.enter(self.connection, "" if self._is_proxied else peer)
        self._watch_stage()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every request of the connection."""
        connection = self.connection
        assert connection is not None
        self._deadline.end()
        self._keep_alive.end()
        self._connections.discard(self)
        self._limits.leave(connection)
        self.write_watch.forget(connection)
        self._cut_all()
        self.resume_writing()
        # Break reference cycles now: collections are rare, and each cycle would keep a body.
        self._waiting.clear()
        self._held = self._parsed = self._running = self.connection = self._parser = None

    def eof_received(self) -> bool:
        """Answer whole requests after the client's end of file, then close the connection.

        A client that reads on is answered, and nothing shows that one has left. So polls that wait
        are answered at once that nothing has come, and a stream ends here, or does not begin.
        """
        whole = list(takewhile(_has_end, self._unanswered()))
        if not whole:
            return False
        whole[-1].keep_alive = False
        self._discard_input()
        for each in whole:
            each.end_wait()
        return True

    def data_received(self, received: bytes) -> None:
        """Feed the parser within the limits."""
        if self._stage is Stage.REFUSED:
            self._left_to_discard_bytes -= len(received)
            if self._left_to_discard_bytes < 0:
                self.transport.abort()
            return
        self._idle_since_s = None
        # Line ends between requests are passed over, but may not hold an idle connection open.
        if self._stage is Stage.IDLE and (received.strip(b"\r\n") or not self._unanswered()):
            self._enter(Stage.HEAD)
        self._silent_bytes += len(received)
        try:
            self._is_feeding = True
            self._feed(received)
            if self._stage is Stage.HEAD or self._stage is Stage.BODY:
                check_progress(self._url, self._silent_bytes, self.settings)
                self._watch_stage()
        except Refused as refused:
            self._refuse(self._answer_to(refused))
        except httptools.HttpParserError as error:
            self._refuse(self._answer_to_error(error))
        finally:
            self._is_feeding = False
        self._begin_held()

    def pause_writing(self) -> None:
        """Pause responses until the peer has taken what was written."""
        if self._room is None:
            self._room = asyncio.Event()

    def resume_writing(self) -> None:
        """Resume responses."""
        if self._room is not None:
            self._room.set()
            self._room = None

    def _feed(self, received: bytes) -> None:
        """Parse bytes; a request for another protocol is parsed again as a plain one.

        The parser would leave its body unread, and the application would see an empty one. Java's
        client asks for HTTP/2 with every first request.
        """
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserUpgrade as upgrade:
            plain_head, self._plain_head = self._plain_head, None
            self._parser = _new_parser(self)
            self._feed((plain_head or b"") + received[upgrade.args[0] :])

    # What the server calls

    def shutdown(self) -> None:
        """Close the connection, after the answer that is under way."""
        unanswered = self._unanswered()
        if unanswered:
            unanswered[-1].keep_alive = False
        else:
            self.transport.close()

    # What an exchange calls

    @property
    def is_closing(self) -> bool:
        """True once the connection is closed or about to be."""
        return self.transport.is_closing()

    @property
    def is_full(self) -> bool:
        """True until the peer has taken enough of what was written."""
        return self._room is not None

    async def wait_for_room(self) -> None:
        """Wait until it is not full, or is lost."""
        if self._room is not None:
            await self._room.wait()

    def write(self, part: bytes) -> None:
        """Write a part of an answer, under the watch."""
        self.transport.write(part)
        if self.connection is not None:
            self.write_watch.note_write(self.connection)

    def resume_reading(self) -> None:
        """Read on: somebody waits for the body."""
        if self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def close(self) -> None:
        """Close once all is sent that was written.

        The rest of a body is discarded for as long as a body may take: a client that writes all of
        it before it reads would lose the answer.
        """
        if self._stage is Stage.BODY:
            self._discard_input(BODY_LINGER_BYTES_MAX)
            self._close(self.settings.body_deadline.seconds)
        else:
            self.transport.close()

    def complete(self, exchange: Exchange) -> None:
        """Begin the next request, and free an unread body: an idle connection would keep it."""
        exchange.body = bytearray()
        self._state.total_requests += 1
        if self._running is exchange:
            self._running = None
        if self.connection is None:  # it has ended, and its request went on
            return
        if self.transport.is_closing() or not exchange.keep_alive:
            return
        self.resume_reading()
        if self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._start_keep_alive()

    def _start_keep_alive(self) -> None:
        # The timer of an earlier request goes on: to set one for each costs more than a look.
        self._idle_since_s = self._loop.time()
        self._keep_alive.begin(self.settings.keep_alive.seconds, self._check_idle)

    def _check_idle(self) -> None:
        """Close the connection if it has been idle for long enough, or look again then."""
        if self._idle_since_s is None:  # the answer under way starts it again
            return
        left_s = self._idle_since_s + self.settings.keep_alive.seconds - self._loop.time()
        if left_s > 0:
            self._keep_alive.begin(left_s, self._check_idle)
        else:
            self.transport.close()

    # Handing over

    def can_hand_over(self, scope: Scope) -> bool:
        """Return True if nothing but this request's answer is still to come on the connection."""
        running = self._running
        return (
            running is not None
            and running.scope["extensions"] is scope["extensions"]  # middleware may copy the rest
            and running.scope["method"] != "HEAD"
            and running.scope["http_version"] != "1.0"  # a stream of our own writes chunks
            and self._stage is Stage.IDLE
            and not self._waiting
            and not running.is_cut
            and not self.transport.is_closing()
        )

    @property
    def running(self) -> Exchange:
        """The exchange whose answer comes next."""
        assert self._running is not None
        return self._running

    def while_waiting(self, stop_waiting: Callable[[], None]) -> None:
        """Take what ends the wait of the answer that comes next, as `Exchange.while_waiting`."""
        if self._running is None:  # the connection has ended
            stop_waiting()
        else:
            self._running.while_waiting(stop_waiting)

    def hand_over(self, stream: asyncio.Protocol) -> HandedOver:
        """Leave the connection to a stream once its answer's header is written.

        Parser and exchange end here: an idle stream keeps none of them.
        """
        exchange, connection = self._running, self.connection
        assert exchange is not None
        assert connection is not None
        self._deadline.end()
        self._keep_alive.end()
        self.resume_reading()
        exchange.is_complete = True  # so that the request's task ends without a complaint
        # At a shutdown uvicorn calls what is in here, and waits until all have left.
        self._connections.discard(self)
        self._connections.add(stream)
        connection.release_requests()
        self.transport.set_protocol(stream)
        # All of these refer to this protocol: only the garbage collector would free the ring, and
        # thousands of openings would have it look through every stream that is there.
        self._parser = self._parsed = self._running = None
        return HandedOver(
            self.transport, connection, self.write_watch, self._limits.leave, self._connections,
            is_paused=self._room is not None,
        )  # fmt: skip

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url, self._headers, self._expects_continue = b"", [], False
        if self._stage is Stage.IDLE:  # it follows another one in the same read
            self._enter(Stage.HEAD)

    def on_url(self, url: bytes) -> None:
        """Append a piece of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header field; ignore trailers.

        Raises:
            Refused: headers-too-large.
        """
        if self._stage is not Stage.HEAD:
            return
        # Here already: ten thousand empty fields cost more time than their bytes say.
        if len(self._headers) == self.settings.header_count_max:
            raise headers_too_large(self.settings)
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the whole header, then begin the request, or let it wait for its turn.

        Raises:
            Refused: the header cannot be answered, or too many requests wait already.
            Stopped: there is no room for the connection.
        """
        parser, headers = self._parser, self._headers
        assert self.connection is not None
        version: str = parser.get_http_version()
        method: bytes = parser.get_method()
        check_head(version, self._url, headers, self.settings)
        if method == b"CONNECT":  # always an upgrade for the parser
            raise Refused("message-invalid", NOT_VALID)
        if parser.should_upgrade():
            self._plain_head = without_upgrade(method, self._url, version, headers)
            return
        if len(self._waiting) == PIPELINE_MAX:
            raise Refused("limit-reached", "Too many requests at once on one connection.")
        scope = self._scope(method.decode("ascii"), version)
        if self._is_proxied:
            self._limits.attribute(self.connection, self._proxies.note(scope))
        is_admitted = self._limits.admits(self.connection)
        if not is_admitted:  # no room; a health check gets this one response
            allowed = self.settings.allowed_origins
            refusal = self._limits.refusal(self.connection, self._url, headers, allowed)
            if refusal:
                raise Stopped(refusal)
        exchange = self._parsed = Exchange(
            self,
            scope,
            self._state.default_headers,
            keep_alive=version != "1.0" and parser.should_keep_alive() and is_admitted,
            expects_continue=self._expects_continue,
        )
        if self._running is None:
            self._start(exchange)
        else:
            self._pause_reading()
            self._waiting.append(exchange)
        self._enter(Stage.BODY)

    def _scope(self, method: str, version: str) -> Scope:
        target = httptools.parse_url(self._url)
        raw_path = target.path or b"/"  # a whole URL may have none (RFC 9110, 4.2.3)
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": method,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": target.query or b"",
            "headers": self._headers,
            "state": self._app_state.copy(),
            "extensions": {
                TRANSPORT_EXTENSION: self.connection,
                PROTOCOL_EXTENSION: self,
            },
        }

    def on_chunk_header(self) -> None:
        """Note that a chunk begins, so the body is progressing."""
        self._silent_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body."""
        self._silent_bytes = 0
        exchange = self._parsed
        if exchange is None or exchange.is_complete:
            return  # nobody wants it any more
        exchange.append(body)
        if len(exchange.body) > UNREAD_BYTES_MAX:
            self._pause_reading()

    def on_message_complete(self) -> None:
        """End the request; the connection is between requests."""
        if self._plain_head is not None:
            return
        if self._parsed is not None:
            self._parsed.end_body()
            self._parsed = None
        self._url, self._headers = b"", []  # a refusal from here on is of no request
        self._enter(Stage.IDLE)

    # Limits and deadlines

    def _enter(self, stage: Stage) -> None:
        if self._stage is not Stage.IDLE:  # the deadline of a first header began at accept
            self._deadline.end()
        self._stage = stage
        self._silent_bytes = 0

    def _watch_stage(self) -> None:
        """Start the deadline of an unfinished header or body, once for all of it."""
        settings = self.settings
        limit = settings.body_deadline if self._stage is Stage.BODY else settings.header_deadline
        self._deadline.begin(limit.seconds, self._deadline_passed)

    def _deadline_passed(self) -> None:
        if self._stage is Stage.IDLE:  # it never sent anything, so it gets no answer
            self.transport.close()
        elif self._is_reading_paused:  # we are the slow side
            self._watch_stage()
        else:
            late = Refused("request-timeout", f"The {self._stage.value} took too long.")
            self._refuse(self._answer_to(late))

    # Refusals

    def _answer_to(self, problem: Refused) -> bytes:
        # With the fields that were read so far: an Origin among them may read it.
        return problem_bytes(problem, cors_fields(self.settings.allowed_origins, self._headers))

    def _answer_to_error(self, error: httptools.HttpParserError) -> bytes:
        # What one of our callbacks has raised; none has, where the parser itself finds a fault.
        cause = error.__context__
        if isinstance(cause, Stopped):
            return cause.answer
        if isinstance(cause, Refused):
            return self._answer_to(cause)
        return self._answer_to(Refused("message-invalid", NOT_VALID))

    def _refuse(self, answer: bytes) -> None:
        """Answer in the application's place and close; earlier requests get theirs first."""
        own = self._parsed if self._stage is Stage.BODY else None
        self._discard_input()
        if own is not None and own.has_begun:
            # Its answer is out or under way; a half one is cut so that it cannot pass for whole.
            self._close() if own.is_complete else self.transport.abort()
            return
        if own is not None:
            own.cut()  # whatever it answers now is not sent
            if own in self._waiting:
                self._waiting.remove(own)
        earlier = [each for each in self._unanswered() if each is not own]
        if earlier:
            earlier[-1].keep_alive = False
            return
        # The parser knows the method of a request before its target.
        is_head = bool(self._url) and self._parser.get_method() == b"HEAD"
        self.transport.write(without_body(answer) if is_head else answer)
        self._close()

    def _discard_input(self, bytes_max: int = LINGER_BYTES_MAX) -> None:
        self._left_to_discard_bytes = bytes_max
        self._deadline.end()
        self._stage = Stage.REFUSED
        self.resume_reading()  # to throw it away, and to notice the client's own close

    def _close(self, linger_s: float = LINGER_S) -> None:
        """Close once what is written is sent, and discard input meanwhile."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self._deadline.begin(linger_s, self.transport.abort)

    def _cut_all(self) -> None:
        for exchange in self._unanswered():
            exchange.cut()

    def _unanswered(self) -> list[Exchange]:
        """Return the requests whose answer is incomplete, oldest first."""
        every = (self._running, *self._waiting)
        return [each for each in every if each is not None and not each.is_complete]

    # Beginning requests

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        kind = None if self._hot_path is None else self._hot_path.kind_of(exchange)
        self._held, self._awaits_body = (exchange, kind), False
        # All that came in one read is parsed first: then it is known what there is to answer.
        if not self._is_feeding:
            self._begin_held()

    def _begin_held(self) -> None:
        """Begin the request that is next; one that may be answered here waits for its body."""
        if self._held is None or self.connection is None:
            return
        exchange, kind = self._held
        if kind is not None and exchange.more_body:
            assert self._hot_path is not None
            # Once, by the header: no body is kept for a request that is going to be refused.
            self._awaits_body = self._awaits_body or self._hot_path.wants_body(exchange, kind)
            if self._awaits_body and len(exchange.body) <= UNREAD_BYTES_MAX:
                return
            kind = None
        self._held = None
        limit = self._request_limits.limit_of(exchange.scope["method"], exchange.scope["path"])
        limit.begin(partial(self._begin, exchange, limit, kind))

    def _begin(self, exchange: Exchange, limit: IterationLimit, kind: RequestKind | None) -> None:
        """Answer a request here if it stands alone; else let the application answer, in a task."""
        if exchange.is_cut:
            return
        if kind is not None and self._room is None and self.can_hand_over(exchange.scope):
            assert self._hot_path is not None
            try:
                if self._hot_path.answer(exchange, kind, self.hand_over):
                    return
            except Exception:  # the application must not repeat it: it may have been carried out
                logger.exception("a request could not be answered")
                exchange.fail()
                return
        limit.exhaust()
        task = self._loop.create_task(exchange.run(self._app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)


def _new_parser(protocol: GatewayProtocol) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    # So that the last request of a client that has closed its half is parsed to its end.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _has_end(exchange: Exchange) -> bool:
    """Return True for a whole request, unless its answer lasts while its client is there."""
    return not exchange.more_body and not _streams(exchange.scope)


def _streams(scope: Scope) -> bool:
    """Return True for a request whose answer may take as long as its client is there."""
    path = scope["path"]
    live = live_in(scope["query_string"]) if has_ending(path, POLLED) else ""
    return has_ending(path, STREAMS) or live not in ("", LONG_POLL)


def _address(found: Any) -> tuple[str, int] | None:
    """Return the host and the port of an end; None for one without, such as a Unix socket's."""
    if not isinstance(found, tuple):
        return None
    # Dual-stack sockets show an IPv4 address as ::ffff:a.b.c.d.
    return str(found[0]).removeprefix(MAPPED), int(found[1])


def protocol_of(scope: Scope) -> GatewayProtocol | None:
    """Return the protocol that read a request; None under a server that is not ours."""
    protocol: GatewayProtocol | None = scope.get("extensions", {}).get(PROTOCOL_EXTENSION)
    return protocol
