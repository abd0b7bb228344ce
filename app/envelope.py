"""Envelopes: a message with what the gateway knows of it, as JSON text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conflation.frame import Frame


class EnvelopeWriter:
    """Writes the envelopes of one topic; what never changes is encoded once.

    A payload goes in as the bytes that were published, never decoded and encoded again.
    """

    def __init__(self, topic: str, epoch: str, op: str) -> None:
        topic_text, op_text = msgspec.json.encode(topic), msgspec.json.encode(op)
        self._head = b'{"topic":' + topic_text + b',"op":' + op_text + b',"key":'
        self._bookmark = b',"bookmark":"' + epoch.encode() + b"-"
        self._topic = topic_text

    def envelope(self, frame: Frame, first: int | None = None, *, timestamp: bool = False) -> bytes:
        """One message; `first` is the offset that its bookmark names, its own by default."""
        offset = frame.offset if first is None else first
        return b"".join(
            (
                self._head,
                frame.key.encode() or b"null",
                self._bookmark,
                str(offset).encode(),
                b'","timestamp":%d,"value":' % frame.timestamp_ms if timestamp else b'","value":',
                frame.payload,
                b"}",
            )
        )

    def batch(self, frames: Sequence[Frame], firsts: Sequence[int]) -> bytes:
        """A whole flush: `{"topic", "rows": [envelopes]}`."""
        rows = [self.envelope(f, first) for f, first in zip(frames, firsts, strict=True)]
        return b'{"topic":' + self._topic + b',"rows":[' + b",".join(rows) + b"]}"
