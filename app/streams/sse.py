"""Server-sent events as bytes."""

from __future__ import annotations

import random

import msgspec

EVENT_STREAM = "text/event-stream"
HEARTBEAT = b": heartbeat\n\n"
FIELD, END = b"data: ", b"\n\n"
# Wide enough to spread thousands of clients that were all cut at once.
RETRY_MS = (1_000, 5_000)


def event(name: str, document: object, *, id_text: str = "", retry_ms: int | None = None) -> bytes:
    """Encode a named event; the document is JSON on one line."""
    lines = [b"event: " + name.encode()]
    if id_text:
        lines.append(b"id: " + id_text.encode())
    if retry_ms is not None:
        lines.append(b"retry: %d" % retry_ms)
    lines.append(FIELD + msgspec.json.encode(document))
    return b"\n".join(lines) + END


def jittered_retry_ms() -> int:
    """Return a random retry delay, so that clients do not come back all at once."""
    return random.randint(*RETRY_MS)
