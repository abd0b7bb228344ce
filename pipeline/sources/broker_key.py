"""The record that a broker's key names, for tombstones."""

from __future__ import annotations

import msgspec

from tidegate.keys.errors import KeyInvalid, KeysError
from tidegate.keys.jsontext import check_json
from tidegate.keys.spec import KeyOf, KeySpec, canonical_key


def removed_key(text: bytes, spec: KeySpec, key_of: KeyOf) -> str | None:
    """Return the record that a Kafka key names: an object's fields, an array, or one value.

    A text that is no JSON is a string.
    """
    try:
        if text[:1] == b"{":
            check_json(text)
            return key_of(text)
        named = canonical_key(text if text[:1] == b"[" else b"[%s]" % _value(text))
    except (KeysError, UnicodeDecodeError):
        return None
    fields = msgspec.json.decode(named)
    return named if len(fields) == len(spec.paths) and None not in fields else None


def _value(text: bytes) -> bytes:
    if not text:
        raise KeyInvalid("no key")
    try:
        check_json(text)
    except KeysError:
        return msgspec.json.encode(text.decode())
    return text
