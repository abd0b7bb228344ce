"""Telemetry: events in the log, and figures counted outside the engine.

Logging is set up once per process: standard error, one line per event. An event that operators may
count or alert on has a stable name and figures: `logger.info("…", extra=event("session-closed",
reason=…))`. docs/operations.md lists them. No line has a payload, a query, a token, or a session's
whole id.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Loggers that are verbose, or repeat what we log, each with its lowest level.
LIBRARY_LEVELS = {
    "uvicorn.error": logging.WARNING,
    "asyncio": logging.WARNING,
    "sse_starlette": logging.WARNING,  # logs payloads at DEBUG
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}

EVENT = "tidegate_event"
FIGURES = "tidegate_figures"
UNNAMED = "message"
"""The name of an event that has none of its own."""

ID_CHARACTERS_HIDDEN = 8


def event(name: str, **figures: object) -> dict[str, Any]:
    """Return the `extra` of a log call for an event of this name."""
    return {EVENT: name, FIGURES: figures}


def shown_id(session_id: str) -> str:
    """Return enough of a session's id to recognise it, too little to read its stream."""
    return session_id[:-ID_CHARACTERS_HIDDEN] + "…"


class OneLineFormatter(logging.Formatter):
    """Writes an event, its traceback included, as one line that cannot be forged."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with line breaks and control characters escaped."""
        text = super().format(record)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class JsonFormatter(logging.Formatter):
    """Writes an event as one JSON object: `at level logger event message`, then its figures."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback is a text in it."""
        at = datetime.fromtimestamp(record.created, UTC)
        document: dict[str, object] = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, EVENT, UNNAMED),
            "message": record.getMessage().encode("utf-8", "backslashreplace").decode(),
            **getattr(record, FIGURES, {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        text = msgspec.json.encode(document, enc_hook=str).decode()
        # Valid JSON may hold characters that a terminal obeys.
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


FORMATTERS = {"text": OneLineFormatter, "json": JsonFormatter}


def configure_logging(level: str, form: str = "text") -> None:
    """Send every logger's events from `level` up to standard error.

    Args:
        level: debug, info, warning or error.
        form: text or json.
    """
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(FORMATTERS[form]())
    root = logging.getLogger()
    # Replaced and not added: a second call, as in a worker, must not log each line twice.
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(max(least, root.level))


# The line has the route and not the path: paths hold ids of sessions and keys of records. Queries,
# headers and bodies are left out. The line of a stream is logged when it ends. Requests that the
# server refuses before routing are not logged; /metrics counts them.
request_log = logging.getLogger("tidegate.requests")

LINE_EXTENSION = "tidegate.access-line"
CUT = 0
"""The status of a request that ended without an answer."""


class AccessLog:
    """Logs a `request` event for each request; the outermost middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, and log its status and duration."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        line = scope.setdefault("extensions", {})[LINE_EXTENSION] = AccessLine(scope)

        async def counted_send(message: Message) -> None:
            line.status = message.get("status", line.status)
            line.sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counted_send)
        finally:
            if not line.is_deferred:
                line.write()


class AccessLine:
    """The access log's line of one request, from its beginning to its end.

    `is_deferred`: the answer goes on after the application has returned; whoever writes it writes
    the line.
    """

    def __init__(self, scope: Scope) -> None:
        self.is_deferred = False
        self.status = CUT
        self.sent_bytes = 0
        self._scope = scope
        self._began_s = time.monotonic()

    def defer(self) -> Callable[[int], None]:
        """Return what writes the line at the answer's end; it is given the bytes that were sent."""
        self.is_deferred = True
        # Only this of the request is kept: the rest is many times the memory of an idle stream.
        kept = ("method", "route", "path_params", "client")
        self._scope = {name: self._scope[name] for name in kept if name in self._scope}

        def ended(sent_bytes: int) -> None:
            self.sent_bytes += sent_bytes
            self.write()

        return ended

    def write(self) -> None:
        """Log the request."""
        _log(self._scope, self.status, self.sent_bytes, time.monotonic() - self._began_s)


def logged_when_over(scope: Scope) -> Callable[[int], None]:
    """Leave the log's line of a request to the end of its stream; return what writes it then."""
    line: AccessLine | None = scope.get("extensions", {}).get(LINE_EXTENSION)
    return not_logged if line is None else line.defer()


def not_logged(sent_bytes: int) -> None:
    """Write no line: requests are not logged."""


def _log(scope: Scope, status: int, sent_bytes: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "")
    figures = {
        "method": scope["method"],
        "route": route or None,
        "topic": scope.get("path_params", {}).get("topic"),
        "status": status,
        "bytes": sent_bytes,
        "duration_ms": round(seconds * 1_000, 3),
        "client": (scope.get("client") or ("",))[0],
    }
    request_log.info(
        "%s %s %d in %.1f ms",
        scope["method"], route or "no route", status, figures["duration_ms"],
        extra=event("request", **figures),
    )  # fmt: skip


SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds for times: from half a millisecond to the write time-out's default."""

BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
"""Upper bounds for sizes: from a single value to the most that is written at once."""

NS_PER_S = 1_000_000_000


class Histogram:
    """Counts by upper bound, and a sum. Belongs to one thread; a note costs a bisection.

    Args:
        bounds: rising upper bounds, each of its own bucket; above the last there is one more.
    """

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        # By bucket and not cumulative: a note then changes one count, and a scrape adds them up.
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float, *, times: int = 1) -> None:
        """Count a value, once or several times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def note_ns(self, duration_ns: int) -> None:
        """Count a duration, kept in seconds."""
        self.note(duration_ns / NS_PER_S)

    @property
    def count(self) -> int:
        """The number of counted values."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each upper bound, infinity last, with the count at or below it."""
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            yield bound, below


@dataclass(slots=True)
class Counters:
    """Figures of one gateway, outside the engine.

    Args:
        flush_lateness: the time from the earliest planned flush until all due rows were written.
        publish: the time from a request's parsed items until store and engine have them.
        append: the store's part of that.
        write: the time from a stream's bytes until its socket has room for more.
        write_bytes: what is written to a stream at once.
        store_failures: writes that the store could not do.
        checkpointed_ms: wall time at which all that had been published was in checkpoints.
        auto_changes: steps of `conflation=auto`, by whether the interval became longer.
        left: sessions whose peer closed the connection without ending them.
    """

    flush_lateness: Histogram = field(default_factory=Histogram)
    publish: Histogram = field(default_factory=Histogram)
    append: Histogram = field(default_factory=Histogram)
    write: Histogram = field(default_factory=Histogram)
    write_bytes: Histogram = field(default_factory=lambda: Histogram(BYTES))
    store_failures: int = 0
    checkpointed_ms: int | None = None
    auto_changes: Counter[str] = field(default_factory=Counter)
    left: int = 0

    def wrote_alike(self, streams: int, size_bytes: int, seconds: float) -> None:
        """Count a text that went to several streams, one after the other, in this time."""
        self.write.note(seconds / streams, times=streams)
        self.write_bytes.note(size_bytes, times=streams)

    def wrote(self, size_bytes: int, duration_ns: int) -> None:
        """Count what a stream wrote at once, and how long its socket took to have room again."""
        self.write_bytes.note(size_bytes)
        self.write.note(duration_ns / NS_PER_S)


@dataclass(slots=True)
class LoopFigures:
    """Figures of an event loop's turns: all that it does between two looks for events.

    Args:
        turns: how long each took.
        held: how many took longer than `loop_held_max`.
    """

    turns: Histogram = field(default_factory=Histogram)
    held: int = 0


@dataclass(slots=True)
class ConnectionFigures:
    """Figures of a server's connections and its event loop, for the metrics.

    Args:
        connections_max: served at once.
        connections: open now.
        refused_by: turned away since the start, by what there was no more room in: all
            `connections`, or those of one `address`.
        given_up: cut since the start because their peers took nothing for too long.
        loop_lag: how much later than asked for the loop calls.
        loop: what the loop's watchdog counts; zeros where none watches.
    """

    connections_max: int
    connections: int = 0
    refused_by: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    loop_lag: Histogram = field(default_factory=Histogram)
    loop: LoopFigures = field(default_factory=LoopFigures)

    @property
    def refused(self) -> int:
        """Turned away since the start for want of room."""
        return self.refused_by.total()
