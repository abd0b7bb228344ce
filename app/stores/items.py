"""Items: messages and removals, their stored form, and their frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, repeat
from typing import overload

import msgspec

from tidegate.conflation.frame import Frame, RemovalReason, Tombstone


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """A validated message: its text (JSON on one line) and its SOW key ("" without one).

    `exempt`: the publisher requires that it is never conflated.
    """

    payload: bytes
    record_key: str = ""
    exempt: bool = False


class Removal(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The removal of a record; it has an offset like a message.

    `payload` is the removed value, if known.
    """

    record_key: str
    reason: RemovalReason
    payload: bytes = b""


Item = Message | Removal


class MessageBlock(Sequence[Message]):
    """The messages of one request as columns; all are exempt, or none.

    A bulk request has thousands. From columns each further step is one call for all of them, and
    no message becomes an object before it is a frame.
    """

    __slots__ = ("exempt", "payloads", "record_keys")

    def __init__(
        self, payloads: list[bytes], record_keys: list[str], *, exempt: bool = False
    ) -> None:
        self.payloads = payloads
        self.record_keys = record_keys
        self.exempt = exempt

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> MessageBlock: ...
    def __getitem__(self, index: int | slice) -> Message | MessageBlock:
        if isinstance(index, slice):
            return MessageBlock(self.payloads[index], self.record_keys[index], exempt=self.exempt)
        return Message(self.payloads[index], self.record_keys[index], self.exempt)

    def extend(self, items: Iterable[Item]) -> None:
        """Add messages at the end, as exempt as the block is."""
        if isinstance(items, MessageBlock):
            self.payloads += items.payloads
            self.record_keys += items.record_keys
            return
        for item in items:
            assert isinstance(item, Message), "a removal has no column for its reason"
            self.payloads.append(item.payload)
            self.record_keys.append(item.record_key)

    def messages(self) -> list[Message]:
        """Return the messages as objects."""
        return list(map(Message, self.payloads, self.record_keys, repeat(self.exempt)))

    def frames(self, first: int, timestamp_ms: int) -> list[Frame]:
        """Return the messages as frames, numbered from `first`."""
        # `map` calls the struct from C: a comprehension takes half as long again.
        return list(
            map(
                Frame, count(first), self.payloads, self.record_keys, repeat(timestamp_ms),
                repeat(self.exempt),
            )
        )  # fmt: skip


# Tags and order of fields are on disks, and may not change. A block has the form of its messages.
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Item])


def pack(items: Sequence[Item]) -> bytes:
    """Encode items as MessagePack: one array each, with the kind first."""
    return _ENCODER.encode(items.messages() if isinstance(items, MessageBlock) else items)


def unpack(packed: bytes) -> list[Item]:
    """Decode what `pack` encoded."""
    return _DECODER.decode(packed)


def to_frames(items: Sequence[Item], first: int, timestamp_ms: int) -> list[Frame]:
    """Convert items to the engine's frames, numbered from `first`."""
    if isinstance(items, MessageBlock):
        return items.frames(first, timestamp_ms)
    return [
        Frame(offset, item.payload, item.record_key, timestamp_ms, item.exempt)
        if isinstance(item, Message)
        else Tombstone(offset, item.payload, item.record_key, timestamp_ms, reason=item.reason)
        for offset, item in enumerate(items, start=first)
    ]
