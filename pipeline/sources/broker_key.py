"""The record that a broker's key names, for tombstones."""

from __future__ import annotations

import msgspec

from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import check_json
from tidegate.keys.spec import KeyOf, KeySpec, canonical_key
from tidegate.pipeline.definitions.source import KeyFormat


class KeyAmbiguous(Exception):
    """A key names one record as a text and another as JSON; the text says what to define."""


def removed_key(
    text: bytes, spec: KeySpec, key_of: KeyOf, key_format: KeyFormat | None = None
) -> str | None:
    """Return the record that a key of Kafka names, in canonical spelling; None if it names none.

    Without a `key_format` an object is JSON, a text that is no JSON is a text, and an array is JSON
    where the topic's key has several fields.

    Raises:
        KeyAmbiguous: there is no `key_format`, and the key names a record in both.
    """
    match key_format:
        case KeyFormat.TEXT:
            return _named_by_text(text, spec)
        case KeyFormat.JSON:
            return _named_by_json(text, spec, key_of)
    by_json = _named_by_json(text, spec, key_of)
    if text[:1] == b"{":
        return by_json
    by_text = _named_by_text(text, spec)
    # The text 700 of a ticker and the number 700 of an order are the same bytes.
    if by_text is not None and _is_json(text):
        raise KeyAmbiguous(
            f"the key {text.decode()} may be a text or JSON: "
            'say which with key_format = "text" or "json"'
        )
    return by_json if by_text is None else by_text


def _named_by_text(text: bytes, spec: KeySpec) -> str | None:
    if not text or len(spec.paths) != 1:
        return None
    try:
        return canonical_key(msgspec.json.encode([text.decode()]))
    except UnicodeDecodeError:
        return None


def _named_by_json(text: bytes, spec: KeySpec, key_of: KeyOf) -> str | None:
    try:
        check_json(text)
        if text[:1] == b"{":
            return key_of(text)
        named = canonical_key(text if text[:1] == b"[" else b"[%b]" % text)
    except KeysError:
        return None
    fields = msgspec.json.decode(named)
    return named if len(fields) == len(spec.paths) and None not in fields else None


def _is_json(text: bytes) -> bool:
    try:
        check_json(text)
    except KeysError:
        return False
    return True
