"""The log: one line for each event, on standard error.

It is set up once per process. An event that operators may count or alert on has a stable name and
figures: `logger.info("…", extra=event("session-closed", reason=…))`. docs/operations.md lists them.
No line has a payload, a query, a token, or a session's whole id.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

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
    """Return enough of a session's id to recognize it, too little to read its stream."""
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
