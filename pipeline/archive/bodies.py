"""Recorded messages as a topic of each type takes them: the bodies of requests.

Topics of JSON take envelopes, many in a request; texts and bytes go as they are, one in a request.
An archive has a text as a JSON string, and bytes as the base64 in one.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from pipeline.archive.pacing import MESSAGES_PER_REQUEST
from pipeline.archive.recorded import Recorded
from pipeline.errors import HistoryInvalid
from pipeline.gateway import NDJSON

_MEDIA_TYPES = {"text": "text/plain", "binary": "application/octet-stream"}


def media_type_of(kind: str) -> str:
    """What a topic of a type is sent."""
    return _MEDIA_TYPES.get(kind, NDJSON)


def messages_max_of(kind: str) -> int:
    """How many messages a request to a topic of a type carries at most."""
    return 1 if kind in _MEDIA_TYPES else MESSAGES_PER_REQUEST


def body_of(kind: str, messages: Sequence[Recorded]) -> bytes:
    """The body that carries messages and removals to a topic of a type; no more than it may.

    Raises:
        HistoryInvalid: a message is none for a topic of texts or bytes.
    """
    match kind:
        case "text":
            return _string(kind, messages[0]).encode()
        case "binary":
            return _bytes(messages[0])
        case _:
            return b"\n".join(map(_envelope, messages)) + b"\n"


def _envelope(message: Recorded) -> bytes:
    """As a gateway takes messages and removals; JSON has line breaks only between its tokens."""
    if message.value is not None:
        return b'{"value":%b}' % message.value.replace(b"\n", b" ").replace(b"\r", b" ")
    key_text, reason = message.key_text or "null", msgspec.json.encode(message.reason)
    return b'{"key":%b,"reason":%b}' % (key_text.encode(), reason)


def _string(kind: str, message: Recorded) -> str:
    try:
        return msgspec.json.decode(message.value or b"", type=str)
    except msgspec.DecodeError:
        raise HistoryInvalid(
            f"{message.spot}: a topic of type {kind} takes strings, and this is none"
        ) from None


def _bytes(message: Recorded) -> bytes:
    try:
        return base64.b64decode(_string("binary", message), validate=True)
    except ValueError:
        raise HistoryInvalid(
            f"{message.spot}: a topic of type binary takes base64, and this is none"
        ) from None
