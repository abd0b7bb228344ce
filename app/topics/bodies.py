"""Envelopes and deltas in the bodies of publishers.

`{"value": …}` is a message, `{"key": […], "reason": "deleted"}` a removal. A line of a journal, or
of a state of the world in envelopes, can be sent unchanged: its other members have no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Message
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.frame import RemovalReason
from tidegate.keys.errors import JsonInvalid, KeyInvalid
from tidegate.keys.jsontext import check_json, check_range, one_line
from tidegate.keys.patch import apply
from tidegate.keys.spec import canonical_key

REASONS: Final = (RemovalReason.DELETED, RemovalReason.EXPIRED, RemovalReason.MATCH)
"""Why a record may leave a topic; the other reason is a subscriber's own."""

FORM: Final = (
    "an envelope has a value, or a key and a reason; beside them topic, op, bookmark, timestamp"
)
_NOTHING = msgspec.Raw(b"")


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    value: msgspec.Raw = _NOTHING
    key: msgspec.Raw = msgspec.Raw(b"null")
    reason: str | None = None
    op: str | None = None
    topic: str | None = None
    bookmark: str | None = None
    timestamp: float | None = None


class Envelope(NamedTuple):
    """A parsed envelope: a checked value on one line, or the reason of a removal.

    `record_key` is canonical; None if the envelope has none.
    """

    value: bytes
    record_key: str | None
    reason: RemovalReason | None


_line = msgspec.json.Decoder(_Line).decode


def read_envelope(text: bytes) -> Envelope:
    """Parse one envelope.

    Raises:
        JsonInvalid: not JSON, not an envelope, or its value is no strict JSON.
        KeyInvalid: its key is none.
    """
    line = _read(text)
    check_range(text)  # before its parts are, so that the position is one of the line
    # Raw parts, so that a value keeps its own bytes.
    key_text, value = bytes(line.key), bytes(line.value)
    record_key = None
    if key_text != b"null":
        check_json(key_text)
        record_key = canonical_key(key_text)
    if line.reason is not None:
        # Its value has no effect, but the body must be JSON all the same.
        if value:
            check_json(value)
        return Envelope(b"", record_key, _reason(line))
    if not value or line.op not in (None, "publish", "snapshot"):
        raise JsonInvalid(FORM)
    check_json(value)
    return Envelope(one_line(value), record_key, None)


def _read(text: bytes) -> _Line:
    try:
        text.decode()  # of a member that comes twice msgspec checks the last only
        return _line(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        check_json(text)  # says where it breaks, if it is no JSON at all
        raise JsonInvalid(FORM) from None


def _reason(line: _Line) -> RemovalReason:
    if line.op not in (None, "oof") or line.reason not in REASONS:
        raise JsonInvalid(f"a removal's reason is one of {', '.join(REASONS)}")
    if bytes(line.key) == b"null":
        raise KeyInvalid("a removal names the key of its record")
    return RemovalReason(line.reason)


MERGED_AT_ONCE = 200
NOTHING = b"{}"


class Delta(Message, frozen=True, gc=False, kw_only=True):
    """A checked merge patch, with its line in the request."""

    line: int | None = None


async def merged(
    entry: CatalogTopic,
    board: Board,
    deltas: Sequence[Delta],
    bytes_max: int,
    total_bytes_max: int,
) -> list[Message]:
    """Merge deltas into the records on the board; several for one record add up.

    A delta without a record is merged into nothing. A record has at most `bytes_max`, and those of
    a request have `total_bytes_max` together: each line makes a whole record. A large request
    yields to the loop; the caller holds `entry.writing`, so that the board does not change.

    Raises:
        Refused: message-too-large, key-invalid, schema-violation, or message-invalid for a number
            beyond a double that was stored before such were refused; of the record that comes out.
    """
    newest: dict[str, bytes] = {}
    records: list[Message] = []
    total_bytes = 0
    # In order: a later delta of a record is merged into what an earlier one makes.
    for delta in deltas:
        before = newest.get(delta.record_key) or _record(board, delta.record_key)
        record = apply(before, delta.payload)
        _check(entry, delta, record, bytes_max)
        total_bytes += len(record)
        if total_bytes > total_bytes_max:
            detail = f"The records that the deltas make have more than {total_bytes_max} bytes."
            raise Refused("message-too-large", detail, line=delta.line)
        await entry.yield_after_work()
        newest[delta.record_key] = record
        records.append(Message(record, delta.record_key, delta.exempt))
        if len(records) % MERGED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return records


def _check(entry: CatalogTopic, delta: Delta, record: bytes, bytes_max: int) -> None:
    """Refuse a merged record that the topic does not take."""
    if len(record) > bytes_max:
        detail = f"The record that the delta makes has more than {bytes_max} bytes."
        raise Refused("message-too-large", detail, line=delta.line)
    # Else the merged record would take the place of another one.
    if entry.key_of is not None and entry.key_of(record) != delta.record_key:
        raise Refused("key-invalid", "The delta changes its record's key.", line=delta.line)
    entry.check_schema(record, delta.line)
    try:
        check_range(record)
    except JsonInvalid as error:
        detail = f"The record that the delta makes has {error.detail}."
        raise Refused("message-invalid", detail, line=delta.line) from None


def _record(board: Board, record_key: str) -> bytes:
    frame = board.get(record_key or THE_RECORD)
    return NOTHING if frame is None else frame.payload
