"""A record as the bus keeps it, and what a request leaves of records."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.stores.store import Item, Message
from conflation.frame import Frame

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes, int, bool]).decode


def newest_of_each(items: Sequence[Item]) -> dict[str, tuple[int, Item]]:
    """What a request leaves of each record: its newest item, and where that stands, from 0."""
    return {item.record_key: (index, item) for index, item in enumerate(items)}


def pack_record(message: Message, timestamp_ms: int) -> bytes:
    """A record's value but for its offset, which the script puts before it: `7 …`."""
    return _pack((message.payload, timestamp_ms, message.exempt))


def record_frame(record_key: str, value: bytes) -> Frame:
    """The frame of a record's value."""
    offset, _, rest = value.partition(b" ")
    payload, timestamp_ms, exempt = _unpack(rest)
    return Frame(int(offset), payload, record_key, timestamp_ms, exempt)
