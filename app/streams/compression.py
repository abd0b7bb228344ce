"""Compression of event streams: gzip or zstd, done once for all streams with the same events."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the module of 3.14, for the versions before

from tidegate.app.texts import weights


class Coding(StrEnum):
    """How the body of a stream is written; the values are those of Content-Encoding."""

    IDENTITY = "identity"
    GZIP = "gzip"
    ZSTD = "zstd"


@lru_cache(maxsize=128)  # most clients send one of a few
def negotiate(accept_encoding: str) -> Coding:
    """Return the coding that has the most weight in Accept-Encoding (RFC 9110, 12.5.3).

    Of equal weights zstd wins, as it takes a fifth of gzip's time, and identity loses. `*` counts
    as gzip: a client that does not name zstd may not support it.
    """
    asked = weights(accept_encoding)
    offered = {
        Coding.ZSTD: asked.get("zstd", 0.0),
        Coding.GZIP: asked.get("gzip", asked.get("*", 0.0)),
    }
    best = max(offered, key=lambda coding: offered[coding])
    is_better = offered[best] > 0 and offered[best] >= asked.get("identity", 0.0)
    # Also for a client that refuses identity: there is no other coding to send.
    return best if is_better else Coding.IDENTITY


def block(text: bytes, coding: Coding) -> bytes:
    """Return a text as a block that any stream with this coding can send next.

    The block refers to no earlier one, so streams that started at different times can send the same
    bytes. A reader can decode the whole text once it has the block.
    """
    return _deflated(text) if coding is Coding.GZIP else _zstd_frame(text)


# A gzip stream's header and its end, RFC 1952: no name, no time, an unknown system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK: Final = b"\x01\x00\x00\xff\xff"
_SIZE_MODULUS: Final = 1 << 32

# Below this a block is stored as it is: deflating it would save too little.
DEFLATED_BYTES_MIN: Final = 512
_STORED_BYTES_MAX: Final = 0xFFFF
# An empty stored block, as zlib's sync flush writes it. Without it Go's reader withholds the text
# of stored blocks until its window of 32 KiB is full: events arrived minutes late, or never.
_FLUSH: Final = b"\x00\x00\x00\xff\xff"
_RAW_DEFLATE: Final = -zlib.MAX_WBITS


def _deflated(text: bytes) -> bytes:
    """Return deflate blocks (RFC 1951) that end at a byte boundary."""
    if len(text) < DEFLATED_BYTES_MIN:
        return struct.pack("<BHH", 0, len(text), _STORED_BYTES_MAX ^ len(text)) + text + _FLUSH
    deflating = zlib.compressobj(wbits=_RAW_DEFLATE)
    return deflating.compress(text) + deflating.flush(zlib.Z_SYNC_FLUSH)


# At level 3, the default, rows are no smaller and take a fifth longer. The window of level 1 is
# half a MiB; browsers take 8 MiB (RFC 9659).
_ZSTD: Final = zstd.ZstdCompressor(level=1)
"""One for all frames, as each takes one call; creating it takes longer than a short frame."""


def _zstd_frame(text: bytes) -> bytes:
    """Return a frame (RFC 8878); concatenated frames are a valid stream.

    Blocks of one frame cannot be shared: the encoder reuses the offsets of the block before.
    """
    # In one call the encoder knows the size, and uses small tables and no window for short texts.
    return _ZSTD.compress(text, zstd.ZstdCompressor.FLUSH_FRAME)


class GzipStream:
    """A gzip stream: a header, blocks that others may send, too, and a checksum of all texts."""

    __slots__ = ("_checksum", "_size_bytes")

    coding = Coding.GZIP
    header = _HEADER

    def __init__(self) -> None:
        self._checksum = 0
        self._size_bytes = 0

    def add_to_checksum(self, text: bytes) -> None:
        """Add a text whose block is written now."""
        self._checksum = zlib.crc32(text, self._checksum)
        self._size_bytes += len(text)

    def block(self, text: bytes) -> bytes:
        """Return the block of a text for this stream alone, and add it to the checksum."""
        self.add_to_checksum(text)
        return _deflated(text)

    def end(self) -> bytes:
        """Return the end of the stream: an empty block and the checksum of all texts."""
        return _LAST_BLOCK + struct.pack("<II", self._checksum, self._size_bytes % _SIZE_MODULUS)


class ZstdStream:
    """A stream of zstd frames. Each is complete, so a stream has no state."""

    __slots__ = ()

    coding = Coding.ZSTD
    header = b""

    def add_to_checksum(self, text: bytes) -> None:
        """Do nothing: there is no checksum of all frames."""

    def block(self, text: bytes) -> bytes:
        """Return the frame of a text for this stream alone."""
        return _zstd_frame(text)

    def end(self) -> bytes:
        """Return no bytes: the last frame is complete."""
        return b""


StreamEncoder = GzipStream | ZstdStream
"""The encoder of a compressed answer; an answer with the identity coding has none."""


def coding_of(encoder: StreamEncoder | None) -> Coding:
    """Return the coding of a stream with this encoder."""
    return Coding.IDENTITY if encoder is None else encoder.coding


def negotiated_encoder(fields: Iterable[tuple[bytes, bytes]]) -> StreamEncoder | None:
    """Return the encoder that a request's Accept-Encoding asks for; None: not compressed.

    Args:
        fields: the request's header fields, names in lower case.
    """
    values = [value for name, value in fields if name == b"accept-encoding"]
    return encoder_of(negotiate(b",".join(values).decode("latin-1")))


def encoder_of(coding: Coding) -> StreamEncoder | None:
    """Return the encoder of a new stream; None for identity."""
    match coding:
        case Coding.GZIP:
            return GzipStream()
        case Coding.ZSTD:
            return ZstdStream()
        case Coding.IDENTITY:
            return None
