"""A request's items as one blob, and as the frames that the engine takes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.stores.store import Item, Message
from conflation.frame import Frame, Tombstone

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Item])


def pack(items: Sequence[Item]) -> bytes:
    """Items as MessagePack: an array a message or removal, the kind in front."""
    return _ENCODER.encode(items)


def unpack(packed: bytes) -> list[Item]:
    """What was packed."""
    return _DECODER.decode(packed)


def frames_of(items: Sequence[Item], first: int, timestamp_ms: int) -> list[Frame]:
    """Items as the engine takes them, numbered from `first`, all of one time."""
    return [
        Frame(offset, item.payload, item.record_key, timestamp_ms, item.exempt)
        if isinstance(item, Message)
        else Tombstone(offset, item.payload, item.record_key, timestamp_ms, reason=item.reason)
        for offset, item in enumerate(items, start=first)
    ]
