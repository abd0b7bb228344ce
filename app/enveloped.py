"""Envelopes that a publisher sends: messages and removals in the form in which journals tell them.

`{"value": …}` is a message, `{"key": […], "reason": "deleted"}` a removal. A line of a journal, or
of a state of the world in envelopes, can be sent as it stands: what else it tells has no effect.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from conflation.frame import Gone
from keys.canonical import canonical_key
from keys.errors import JsonInvalid, KeyInvalid
from keys.jsontext import check_json, one_line

REASONS: Final = (Gone.DELETED, Gone.EXPIRED, Gone.MATCH)
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


class Told(NamedTuple):
    """What an envelope says: a checked value on one line, or why the record of a key is gone.

    `record_key` is canonical, None where the envelope has none.
    """

    value: bytes
    record_key: str | None
    reason: Gone | None


_line = msgspec.json.Decoder(_Line).decode


def read_envelope(text: bytes) -> Told:
    """Of one JSON text.

    Raises:
        JsonInvalid: not JSON, not an envelope, or its value is no strict JSON.
        KeyInvalid: its key is none.
    """
    line = _read(text)
    key_text, value = bytes(line.key), bytes(line.value)
    record_key = None
    if key_text != b"null":
        check_json(key_text)
        record_key = canonical_key(key_text)
    if line.reason is not None:
        return Told(b"", record_key, _reason(line))
    if not value or line.op not in (None, "publish", "snapshot"):
        raise JsonInvalid(FORM)
    check_json(value)
    return Told(one_line(value), record_key, None)


def _read(text: bytes) -> _Line:
    try:
        return _line(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        check_json(text)  # says where it breaks, if it is no JSON at all
        raise JsonInvalid(FORM) from None


def _reason(line: _Line) -> Gone:
    if line.op not in (None, "oof") or line.reason not in REASONS:
        raise JsonInvalid(f"a removal's reason is one of {', '.join(REASONS)}")
    if bytes(line.key) == b"null":
        raise KeyInvalid("a removal names the key of its record")
    return Gone(line.reason)
