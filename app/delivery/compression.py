"""Compression of event streams: gzip, made once for all that get the same bytes."""

from __future__ import annotations

import struct
import zlib
from typing import Final

# A stream's header and its end, RFC 1952: no name, no time, an unknown system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK: Final = b"\x01\x00\x00\xff\xff"
_SIZE_MODULUS: Final = 1 << 32

# Below this a block is stored as it is: a deflated one would save less than its making costs.
DEFLATED_BYTES_MIN: Final = 512
_STORED_BYTES_MAX: Final = 0xFFFF
_RAW_DEFLATE: Final = -zlib.MAX_WBITS


def block(text: bytes) -> bytes:
    """Return deflate blocks of a text that any stream can send after any others (RFC 1951).

    They end at a byte and refer to nothing before them, so that many streams send the same ones,
    and one that joins late decodes them. A reader has the whole text once it has the block.
    """
    if len(text) < DEFLATED_BYTES_MIN:
        return struct.pack("<BHH", 0, len(text), _STORED_BYTES_MAX ^ len(text)) + text
    deflating = zlib.compressobj(wbits=_RAW_DEFLATE)
    return deflating.compress(text) + deflating.flush(zlib.Z_SYNC_FLUSH)


class GzipStream:
    """What is one stream's own in its gzip encoding: the header, and the checksum at its end."""

    __slots__ = ("_checksum", "_size_bytes")

    header = _HEADER

    def __init__(self) -> None:
        self._checksum = 0
        self._size_bytes = 0

    def note(self, text: bytes) -> None:
        """Note a text whose block is written now."""
        self._checksum = zlib.crc32(text, self._checksum)
        self._size_bytes += len(text)

    def block(self, text: bytes) -> bytes:
        """Return the block of a text that is this stream's alone, and note it."""
        self.note(text)
        return block(text)

    def end(self) -> bytes:
        """Return what ends the stream: an empty block and the checksum of all texts."""
        return _LAST_BLOCK + struct.pack("<II", self._checksum, self._size_bytes % _SIZE_MODULUS)
