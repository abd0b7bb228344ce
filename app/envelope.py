"""Envelopes: a message with what the gateway knows of it, as JSON text."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from conflation.count import count_of
from conflation.definition import Kind
from conflation.frame import Frame, Row, Tombstone
from conflation.subscription import Shown

NOTHING = Shown()


class Op(StrEnum):
    """What a row does to a client's copy: both of the first replace the record."""

    SNAPSHOT = "snapshot"
    PUBLISH = "publish"
    DELTA = "delta"
    OOF = "oof"


def op_of(frame: Frame, op: Op) -> Op:
    """A row's own op; `op` is what whole values of its batch are."""
    if frame.removed:
        return Op.OOF
    return Op.DELTA if isinstance(frame, Row) and frame.patch is not None else op


def json_value(frame: Frame, kind: Kind) -> bytes:
    """A row's value as JSON: of text a string, of binary its base64; a delta is its patch.

    The removal of what was never there takes nothing away: null.
    """
    if isinstance(frame, Row) and frame.patch is not None:
        return frame.patch
    match kind:
        case Kind.TEXT:
            return msgspec.json.encode(frame.payload.decode())
        case Kind.BINARY:
            return b'"' + base64.b64encode(frame.payload) + b'"'
        case _:
            return frame.payload or b"null"


class EnvelopeWriter:
    """Writes the envelopes of one topic; what never changes is encoded once.

    A JSON payload goes in as the bytes that were published, never decoded and encoded again.
    `bookmark` and `timestamp` (ms of the epoch) are those of the first message that a row
    stands for; `conflated`, `first` and `last` come with `receipt`; `no_sowkey` leaves the key out.
    """

    def __init__(
        self,
        topic: str,
        epoch: str,
        op: str,
        *,
        kind: Kind = Kind.JSON,
        shown: Shown = NOTHING,
    ) -> None:
        self._topic = msgspec.json.encode(topic)
        self._epoch = epoch.encode()
        self._op = Op(op)
        self._kind = kind
        self._shown = shown
        self._heads = {
            each: b'{"topic":' + self._topic + b',"op":"' + each.encode() + b'"' for each in Op
        }

    def envelope(self, frame: Frame) -> bytes:
        """One row."""
        count, shown = count_of(frame), self._shown
        first = self._bookmark(count.first)
        members = [self._heads[op_of(frame, self._op)]]
        if not shown.no_sowkey:
            members.append(b'"key":' + (frame.key.encode() or b"null"))
        members.append(b'"bookmark":' + first)
        if shown.timestamp:
            members.append(b'"timestamp":%d' % count.first_ms)
        if shown.receipt:
            last = self._bookmark(frame.offset)
            members.append(b'"conflated":%d,"first":%b,"last":%b' % (count.messages, first, last))
        if isinstance(frame, Tombstone):
            members.append(b'"reason":"%b"' % frame.reason.encode())
        members.append(b'"value":' + json_value(frame, self._kind))
        return b",".join(members) + b"}"

    def batch(self, frames: Iterable[Frame]) -> bytes:
        """A whole flush: `{"topic", "rows": [envelopes]}`."""
        rows = b",".join(self.envelope(frame) for frame in frames)
        return b'{"topic":' + self._topic + b',"rows":[' + rows + b"]}"

    def _bookmark(self, offset: int) -> bytes:
        return b'"%b-%d"' % (self._epoch, offset)
