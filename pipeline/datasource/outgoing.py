"""Rows of a frame on their way to a topic: checked here, where the row is still known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa

from keys.canonical import canonical_key
from keys.errors import KeysError
from keys.jsontext import check_json, one_line
from pipeline.errors import StreamFailed

REASONS = ("deleted", "expired", "match")


class Line(NamedTuple):
    """A message's JSON text on one line, or an envelope: of a removal, or of a message and key."""

    text: bytes
    is_envelope: bool


def lines_of(batch: pa.RecordBatch) -> Iterator[Line]:
    """The lines of rows with a column `value`, and perhaps `key` and `removed`.

    A row without a value, or with a reason in `removed`, removes the record of its key. A key
    beside a value goes along: only the gateway knows whether it is the one that the value says.

    Raises:
        StreamFailed: a value is no JSON, a key is none, a removal has no key; the text says why.
    """
    for value, key_text, reason in zip(
        _texts(batch, "value"), _texts(batch, "key"), _texts(batch, "removed"), strict=True
    ):
        record_key = None if key_text is None else _key(key_text)
        if value is None or reason is not None:
            yield Line(_removal(record_key, reason or b"deleted"), is_envelope=True)
        elif record_key is not None:
            envelope = b'{"key":%s,"value":%s}' % (record_key, _message(value))
            yield Line(envelope, is_envelope=True)
        else:
            yield Line(_message(value), is_envelope=False)


def body_of(lines: list[Line]) -> tuple[bytes, bool]:
    """Lines as the body of a request, and whether it is one of envelopes."""
    if not any(line.is_envelope for line in lines):
        return b"\n".join(line.text for line in lines) + b"\n", False
    envelopes = (
        line.text if line.is_envelope else b'{"value":' + line.text + b"}" for line in lines
    )
    return b"\n".join(envelopes) + b"\n", True


def _texts(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    texts: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
    return texts


def _message(value: bytes) -> bytes:
    try:
        check_json(value)
    except KeysError as error:
        raise StreamFailed(
            f"a value is no JSON text ({error.detail}): write to_json(struct(...)) AS value"
        ) from None
    return one_line(value)


def _removal(record_key: bytes | None, reason: bytes) -> bytes:
    if record_key is None:
        raise StreamFailed("a row without value removes a record, and needs the record's key")
    if reason.decode() not in REASONS:
        raise StreamFailed(f"removed is null or one of {', '.join(REASONS)}")
    return b'{"key":%s,"reason":%s}' % (record_key, msgspec.json.encode(reason.decode()))


def _key(text: bytes) -> bytes:
    try:
        check_json(text)
        return canonical_key(text).encode()
    except KeysError as error:
        raise StreamFailed(f"the key of a row is none: {error.detail}") from None
