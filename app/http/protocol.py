"""HTTP/1.1 on one connection: uvicorn's parser and cycle, with the limits they leave out.

uvicorn has no deadline for a header or a body, httptools no limit on headers, and a client that
stops reading is held for ever. Here each has a bound, and what breaks one is answered with a
problem and closed.
"""

import asyncio
from functools import partial
from typing import Any, Final

import httptools
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from tidegate.app.figures import ConnectionFigures
from tidegate.app.http.admission import BufferedTransport, ConnectionLimits, Paces
from tidegate.app.http.known_requests import Key, KnownRequests, may_wait
from tidegate.app.http.problems import STREAMS
from tidegate.app.http.scope import FIGURES_EXTENSION, TRANSPORT_EXTENSION
from tidegate.app.http.transport.proxies import TrustedProxies
from tidegate.app.http.transport.uvicorn_pin import new_parser, require_known_uvicorn
from tidegate.app.http.wire import (
    RequestBounds,
    Stage,
    Stopped,
    head_problem,
    problem_bytes,
    without_upgrade,
)
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.connection import Connection, Deadline, HandedOver, WriteWatch

PROTOCOL_EXTENSION: Final = "tidegate.protocol"

require_known_uvicorn()

# After a refusal the client may still be sending. Closing at once would reset the connection and
# lose the answer, so we read on for a moment, within bounds.
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1 << 20

NOT_VALID: Final = Refused("message-invalid", "Not a valid HTTP request.")


class GatewayProtocol(HttpToolsProtocol):
    """One connection, from accept to close."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: Settings,
        figures: ConnectionFigures,
        admission: ConnectionLimits,
        write_watch: WriteWatch,
        paces: Paces,
        proxies: TrustedProxies,
        known: KnownRequests,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.settings = settings
        self._figures = figures
        self._limits = admission
        self.write_watch = write_watch
        self._paces = paces
        self._proxies = proxies
        self._known = known
        self._is_proxied = False
        self._stage = Stage.IDLE
        self._deadline = Deadline(self.loop)
        self._refusal = b""
        self._plain_head: bytes | None = None
        self._running: RequestResponseCycle | None = None
        self._held: tuple[RequestResponseCycle, Any, Key | None] | None = None
        self._is_feeding = False
        self._bounds = RequestBounds(settings)
        self._discarded_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio's own is wider
        """Take the accepted connection; its first header's time runs from here."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.settings.write_buffer_bytes_max, low=0)
        self.connection = Connection(transport, self._disconnect_requests, self._figures)
        peer = self.client[0] if self.client else ""
        self._is_proxied = self._proxies.trusts(peer)
        self._limits.enter(self.connection, "" if self._is_proxied else peer)
        self._paces.rest(self.connection)
        self._watch_stage()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every request of the connection; uvicorn ends only the newest."""
        self._deadline.end()
        self._limits.leave(self.connection)
        self._paces.wake(self.connection)
        self.write_watch.forget(self.connection)
        self._disconnect_requests()
        self.pipeline.clear()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        # No ring is left to the collector: it comes seldom, and each would keep a body until then.
        self._held = self.cycle = self.scope = self._running = self.connection = None  # type: ignore[assignment]  # uvicorn's types know no end

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's own returns nothing
        """Answer whole requests after the client's end of file, then close the connection.

        A stream ends here: nothing else would show that its client has left.
        """
        whole = [cycle for cycle in self._unanswered() if not cycle.more_body]
        if not whole or any(cycle.scope["path"].endswith(STREAMS) for cycle in whole):
            return False
        whole[-1].keep_alive = False
        self._read_no_more()
        return True

    def data_received(self, received: bytes) -> None:
        """Feed the parser within the limits."""
        self._paces.wake(self.connection)
        if self._stage is Stage.REFUSED:
            self._discarded_bytes += len(received)
            if self._discarded_bytes > LINGER_BYTES_MAX:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        # Line ends between requests are passed over, but may not hold an idle connection open.
        if self._stage is Stage.IDLE and (received.strip(b"\r\n") or not self._unanswered()):
            self._enter(Stage.HEAD)
        self._bounds.received(len(received))
        try:
            self._is_feeding = True
            self._feed(received)
            if self._stage is Stage.HEAD or self._stage is Stage.BODY:
                self._stop_for(self._bounds.silence_problem())
                self._watch_stage()
        except (httptools.HttpParserError, Stopped):
            self._refuse(self._refusal or problem_bytes(NOT_VALID))
        finally:
            self._is_feeding = False
        self._begin_held()

    def _feed(self, received: bytes) -> None:
        """Parse bytes; a request for another protocol is parsed again as a plain one.

        The parser would leave its body unread, and the application would see an empty one. Java's
        client asks for HTTP/2 with every first request.
        """
        try:
            self.parser.feed_data(received)
        except httptools.HttpParserUpgrade as upgrade:
            plain_head, self._plain_head = self._plain_head, None
            self.parser = new_parser(self)
            self._feed((plain_head or b"") + received[upgrade.args[0] :])

    # Handing over

    def can_hand_over(self, scope: Scope) -> bool:
        """Return True if nothing but this request's answer is still to come on the connection."""
        running = self._running
        return (
            running is not None
            and running.scope["extensions"] is scope["extensions"]  # layers may copy the rest
            and running.scope["method"] != "HEAD"
            and running.scope["http_version"] != "1.0"  # a stream of our own writes chunks
            and self._stage is Stage.IDLE
            and not self.pipeline
            and not running.disconnected
            and not self.transport.is_closing()
        )

    def buffering(self) -> BufferedTransport:
        """Collect what the answer of the running request writes, in place of sending it."""
        return BufferedTransport(self._running)

    def hand_over(self, stream: asyncio.Protocol) -> HandedOver:
        """Leave the connection to a stream once its answer's header is written.

        Parser, request and response cycle end here: an idle stream keeps none of them.
        """
        cycle, connection = self._running, self.connection
        assert cycle is not None
        self._deadline.end()
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        cycle.response_complete = True  # so that the request's task ends without a complaint
        # At a shutdown uvicorn calls what is in here, and waits until all have left.
        connections: set[Any] = self.connections
        connections.discard(self)
        connections.add(stream)
        connection.release_requests()
        self.transport.set_protocol(stream)
        # All of these refer to this protocol: only the garbage collector would free the ring, and
        # thousands of openings would have it look through every stream that is there.
        del self.parser, self.cycle, self.scope
        self._running = None
        return HandedOver(
            self.transport, connection, self.write_watch, self._limits.leave, connections,
            is_paused=self.flow.write_paused,
        )  # fmt: skip

    # Parser callbacks

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._bounds.begin_header()
        if self._stage is Stage.IDLE:  # it follows another one in the same read
            self._enter(Stage.HEAD)

    def on_url(self, url: bytes) -> None:
        """Append a piece of the request's target."""
        super().on_url(url)
        self._stop_for(self._bounds.target_problem(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header field; ignore trailers."""
        if self._stage is not Stage.HEAD:
            return
        self._stop_for(self._bounds.field_problem(name, value, len(self.headers)))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the whole header, then start the app."""
        version = self.parser.get_http_version()
        self._stop_for(head_problem(version, self.url, self.headers))
        if self.parser.should_upgrade():
            method = self.parser.get_method()
            self._plain_head = without_upgrade(method, self.url, version, self.headers)
            return
        self._stop_for(self._bounds.pipeline_problem(len(self.pipeline)))
        if self._is_proxied:
            self._limits.attribute(self.connection, self._proxies.note(self.scope))
        is_admitted = self._limits.admits(self.connection)
        if not is_admitted:  # for want of room; a health check gets this one answer
            allowed = self.settings.allowed_origins
            self._refusal = self._limits.refusal(self.connection, self.url, self.headers, allowed)
            if self._refusal:
                raise Stopped
        self.scope["extensions"] = {
            TRANSPORT_EXTENSION: self.connection,  # type: ignore[dict-item]  # ASGI allows any value, uvicorn's type a dict
            FIGURES_EXTENSION: self._figures,  # type: ignore[dict-item]  # uvicorn's type wants a dict
            PROTOCOL_EXTENSION: self,  # type: ignore[dict-item]  # uvicorn's type wants a dict
        }
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and is_admitted
        self._enter(Stage.BODY)

    def on_chunk_header(self) -> None:
        """Note that a chunk begins, so the parser is not swallowing."""
        self._bounds.restart_silence()

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body."""
        self._bounds.restart_silence()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; the connection is between requests."""
        if self._plain_head is not None:
            return
        super().on_message_complete()
        self._enter(Stage.IDLE)

    def on_response_complete(self) -> None:
        """Begin the next request, and free the body that was not read: an idle one kept it."""
        if self._running is not None:
            self._running.body = bytearray()
        if self.connection is not None:  # else it has ended, and its request went on
            is_idle = self._stage is Stage.IDLE and not self.pipeline
            self._paces.answered(self.connection, is_idle=is_idle)
        super().on_response_complete()

    # Limits and deadlines

    def _stop_for(self, problem: Refused | None) -> None:
        """Stop the parser if there is a problem."""
        if problem is not None:
            self._refusal = problem_bytes(problem)
            raise Stopped

    def _enter(self, stage: Stage) -> None:
        if self._stage is not Stage.IDLE:  # the deadline of a first header began at accept
            self._deadline.end()
        self._stage = stage
        self._bounds.restart_silence()

    def _watch_stage(self) -> None:
        """Start the deadline of an unfinished header or body, once for all of it."""
        settings = self.settings
        limit = settings.body_deadline if self._stage is Stage.BODY else settings.header_deadline
        self._deadline.begin(limit.seconds, self._deadline_passed)

    def _deadline_passed(self) -> None:
        if self._stage is Stage.IDLE:  # it never sent anything, so it gets no answer
            self.transport.close()
        elif self.flow.read_paused:  # we are the slow side
            self._watch_stage()
        else:
            late = Refused("request-timeout", f"The {self._stage.value} took too long.")
            self._refuse(problem_bytes(late))

    # Refusals

    def _refuse(self, answer: bytes) -> None:
        """Answer in the application's place and close; earlier requests get theirs first."""
        own = self.cycle if self._stage is Stage.BODY else None
        self._read_no_more()
        if own is not None and own.response_started:
            # Its answer is out or under way; a half one is cut so that it cannot pass for whole.
            self._close() if own.response_complete else self.transport.abort()
            return
        if own is not None:
            own.disconnected = True  # whatever it answers now is not sent
            queued = [entry for entry in self.pipeline if entry[0] is not own]
            self.pipeline.clear()
            self.pipeline.extend(queued)
        earlier = [cycle for cycle in self._unanswered() if cycle is not own]
        if earlier:
            earlier[-1].keep_alive = False
            return
        self.transport.write(answer)
        self._close()

    def _read_no_more(self) -> None:
        self._deadline.end()
        self._stage = Stage.REFUSED
        self.flow.resume_reading()  # to throw it away, and to notice the client's own close

    def _close(self) -> None:
        """Close after what is written is sent, listening on for a moment."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self._deadline.begin(LINGER_S, self.transport.abort)

    def _disconnect_requests(self) -> None:
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()

    def _unanswered(self) -> list[RequestResponseCycle]:
        """Return the requests whose answer is incomplete, oldest first."""
        cycles = self._running, *(cycle for cycle, _ in reversed(self.pipeline))
        return [cycle for cycle in cycles if cycle and not cycle.response_complete]

    # Beginning requests

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        # What a proxy says of its client counts as well, and is no part of the header's key.
        self._held = cycle, app, None if self._is_proxied else self._known.head_key(cycle.scope)
        # All that came in one read is parsed first: then it is known what there is to answer.
        if not self._is_feeding:
            self._begin_held()

    def _begin_held(self) -> None:
        """Begin the request that is next; one that may be answered at once waits for its body."""
        if self._held is None:
            return
        cycle, app, key = self._held
        at_once = self._known.find_immediate_answer(key) is not None
        if at_once and cycle.more_body and may_wait(cycle):
            self._paces.expect(self.connection)
            return
        self._held = None
        begin = partial(self._begin, cycle, app, key)
        self._paces.begin(cycle.scope["path"], self.connection, begin, at_once=at_once)

    def _begin(self, cycle: RequestResponseCycle, app: Any, head: Key | None) -> None:
        """Answer a request at once if it stands alone and its route can; else start its task."""
        if cycle.disconnected:
            return
        scope: Any = cycle.scope
        known = self._known.find_immediate_answer(head)
        if known is not None and not self.flow.write_paused and self.can_hand_over(scope):
            whole = known.answered(cycle, self.server_state.default_headers, self.hand_over)
            if whole:
                self.transport.write(whole)
                self.write_watch.note_write(self.connection)
                self.on_response_complete()
            if whole is not None:
                return
        app = _watched(app, self.write_watch, self.connection)
        if scope["http_version"] == "1.0":
            app = _without_chunks(app, cycle)
        super()._start_asgi_task(cycle, self._known.noting(app, head))


def protocol_of(scope: Scope) -> GatewayProtocol | None:
    """Return the protocol that read a request; None under a server that is not ours."""
    protocol: GatewayProtocol | None = scope.get("extensions", {}).get(PROTOCOL_EXTENSION)
    return protocol


def _watched(app: Any, watch: WriteWatch, connection: Connection) -> Any:
    """Return the ASGI application with each of its sends under the watch."""

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def watched_send(message: Message) -> None:
            await send(message)
            watch.note_write(connection)

        await app(scope, receive, watched_send)

    return watched


def _without_chunks(app: Any, cycle: RequestResponseCycle) -> Any:
    """Return the ASGI application with answers for HTTP/1.0, which has no chunks (RFC 9112, 7.1).

    uvicorn writes each body of unknown length in chunks. Here such a body ends with the connection.
    """
    # It has no 100 either (RFC 9110, 15.2): its client would take that for the answer.
    cycle.waiting_for_100_continue = False

    async def unframed(scope: Scope, receive: Receive, send: Send) -> None:
        is_open_ended = False

        async def unframed_send(message: Message) -> None:
            nonlocal is_open_ended
            if message["type"] == "http.response.start":
                names = [name.lower() for name, _ in message.get("headers", ())]
                is_open_ended = b"content-length" not in names
                if is_open_ended:
                    cycle.chunked_encoding = False
            elif is_open_ended:
                # uvicorn counts a body that is not chunked down to nothing.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, unframed_send)

    return unframed
