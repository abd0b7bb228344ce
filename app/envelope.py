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
    if type(frame) is Frame:  # as most are
        return op
    if frame.removed:
        return Op.OOF
    return Op.DELTA if isinstance(frame, Row) and frame.patch is not None else op


def json_value(frame: Frame, kind: Kind) -> bytes:
    """A row's value as JSON: of text a string, of binary its base64; a delta is its patch.

    The removal of what was never there takes nothing away: null.
    """
    if isinstance(frame, Row) and frame.patch is not None:
        return frame.patch
    if kind is Kind.TEXT:
        return msgspec.json.encode(frame.payload.decode())
    if kind is Kind.BINARY:
        return b'"' + base64.b64encode(frame.payload) + b'"'
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
        self._op = Op(op)
        self._kind = kind
        self._has_json = kind in (Kind.JSON, Kind.SERIES)
        self._shown = shown
        self._shows_more = shown.timestamp or shown.receipt
        self._epoch = b'"' + epoch.encode() + b"-"
        self._head = self._head_of(self._op)

    def envelope(self, frame: Frame) -> bytes:
        """One row."""
        op = op_of(frame, self._op)
        is_whole = op is self._op
        first = frame.first if isinstance(frame, Row) else frame.offset
        return b"".join(
            (
                self._head if is_whole else self._head_of(op),
                b"" if self._shown.no_sowkey else frame.key.encode() or b"null",
                b',"bookmark":',
                self._epoch,
                str(first).encode(),
                b'"',
                self._more(frame) if self._shows_more or not is_whole else b"",
                b',"value":',
                frame.payload if is_whole and self._has_json else json_value(frame, self._kind),
                b"}",
            )
        )

    def batch(self, frames: Iterable[Frame]) -> bytes:
        """A whole flush: `{"topic", "rows": [envelopes]}`."""
        rows = b",".join(map(self.envelope, frames))
        return b'{"topic":' + self._topic + b',"rows":[' + rows + b"]}"

    def _head_of(self, op: Op) -> bytes:
        key_name = b"" if self._shown.no_sowkey else b',"key":'
        return b'{"topic":' + self._topic + b',"op":"' + op.encode() + b'"' + key_name

    def _more(self, frame: Frame) -> bytes:
        """What few envelopes have."""
        count, members = count_of(frame), [b""]
        if self._shown.timestamp:
            members.append(b'"timestamp":%d' % count.first_ms)
        if self._shown.receipt:
            ends = (self._epoch, count.first, self._epoch, frame.offset)
            members.append(b'"conflated":%d' % count.messages)
            members.append(b'"first":%b%d","last":%b%d"' % ends)
        if isinstance(frame, Tombstone):
            members.append(b'"reason":"%b"' % frame.reason.encode())
        return b",".join(members)
