"""What a client receives: a stream's bytes as events, and events as rows; by the standard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event; `end` is the number of the stream's bytes up to its blank link."""

    name: str
    text: str
    id: str
    end: int
    at_ns: int

    @property
    def document(self) -> Any:
        """Its data as JSON."""
        return json.loads(self.text)


class EventParser:
    """Bytes cut anywhere in, events out. Only what our streams may contain is understood."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.comments = 0
        self.retry_ms: int | None = None
        self._rest = b""
        self._end = 0

    def feed(self, text: bytes, at_ns: int) -> Iterator[ReceivedEvent]:
        """The events that these bytes complete."""
        *blocks, self._rest = (self._rest + text).split(b"\n\n")
        for block in blocks:
            self._end += len(block) + 2
            found = self._event(block.decode(), at_ns)
            if found is not None:
                yield found

    def _event(self, block: str, at_ns: int) -> ReceivedEvent | None:
        name, lines = "message", []
        for link in block.split("\n"):
            field, colon, content = link.partition(": ")
            assert colon, f"a link that is none of ours: {link[:40]!r}"
            match field:
                case "data":
                    lines.append(content)
                case "event":
                    name = content
                case "id":
                    self.last_id = content
                case "retry":
                    self.retry_ms = int(content)
                case "":
                    self.comments += 1
                case _:
                    raise AssertionError(f"an unknown field: {field[:40]!r}")
        if not lines:
            return None
        return ReceivedEvent(name, "\n".join(lines), self.last_id, self._end, at_ns)


@dataclass(frozen=True, slots=True)
class ReceivedRow:
    """One row, whatever the format: `op` is `value`, `delta` or `oof`; `at` its event.

    `value` is the value, the patch, or what an oof takes away; `text` the very bytes where they
    stand alone.
    """

    op: str
    own: str
    value: Any
    at: ReceivedEvent
    text: str = ""
    bookmark: str = ""
    snapshot: bool | None = None


def rows_of(received: ReceivedEvent, form: str) -> list[ReceivedRow]:
    """The rows of a data event."""
    document = received.document
    if form == "value":
        if received.name == "oof":
            return [ReceivedRow("oof", document["key"][0], document["value"], received)]
        op = "delta" if received.name == "delta" else "value"
        return [ReceivedRow(op, document["k"], document, received, received.text)]
    rows = document["rows"] if form == "batch" else [document]
    return [_envelope_row(row, received) for row in rows]


def _envelope_row(row: dict[str, Any], received: ReceivedEvent) -> ReceivedRow:
    op = {"snapshot": "value", "publish": "value"}.get(row["op"], row["op"])
    own = row["key"][0] if row["key"] else row["value"]["k"]
    return ReceivedRow(
        op,
        own,
        row["value"],
        received,
        bookmark=row["bookmark"],
        snapshot=row["op"] == "snapshot" if op == "value" else None,
    )
