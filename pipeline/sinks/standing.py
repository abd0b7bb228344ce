"""What a topic has as its stream begins: what of the stream's rows is news to it, what is left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from pipeline.gateway import Gateway

DIGEST_BYTES = 16


class _Record(msgspec.Struct, gc=False):
    key: msgspec.Raw
    value: msgspec.Raw


_records = msgspec.json.Decoder(_Record).decode_lines


class Standing:
    """The records of a topic, by the JSON text of their key; values as digests."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        """From NDJSON envelopes of the topic's state of the world, whole lines in each piece."""
        self._left = {
            bytes(record.key).decode(): _digest(bytes(record.value))
            for piece in pieces
            for record in _records(piece)
        }

    @classmethod
    def of(cls, gateway: Gateway, topic: str) -> Standing:
        """As it is now.

        Raises:
            GatewayRefused: there is no such topic, or it keeps no records.
        """
        return cls(gateway.records(topic))

    def is_news(self, record: str, value: bytes | None) -> bool:
        """Whether the topic has a record otherwise; None is its removal. Each is asked once."""
        known = self._left.pop(record, None)
        return known != (None if value is None else _digest(value))

    def left(self) -> Iterator[str]:
        """The keys of records that nobody asked for, in the order of their last change."""
        yield from self._left


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest()
