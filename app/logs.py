"""Logging set up once per process: standard error, one line per event."""

import logging
import sys

# Chatty at their own levels, or repeating what we log; the second column is the least level.
LIBRARY_LEVELS = {
    "uvicorn.error": logging.WARNING,
    "asyncio": logging.WARNING,
    "sse_starlette": logging.WARNING,  # logs payloads at DEBUG
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}


class OneLineFormatter(logging.Formatter):
    """Writes an event, its traceback included, as one line that cannot be forged."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        """The line; line breaks and control characters are escaped."""
        text = super().format(record)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def configure_logging(level: str) -> None:
    """Send every logger's events from `level` up to standard error.

    Args:
        level: debug, info, warning or error.
    """
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(OneLineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(max(least, root.level))
