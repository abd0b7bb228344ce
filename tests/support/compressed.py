"""Decoders of compressed streams, piece by piece, as clients have them."""

from __future__ import annotations

import sys
import zlib

from tidegate.app.streams.compression import Coding

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, decompress
else:
    from backports.zstd import ZstdDecompressor, decompress

zstd_decompressed = decompress


class Decoder:
    """Decodes a stream as it comes; of zstd it takes frame after frame."""

    def __init__(self, coding: Coding) -> None:
        self._gzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        self._zstd = ZstdDecompressor()
        self._is_zstd = coding is Coding.ZSTD

    def decompress(self, piece: bytes) -> bytes:
        """The text that can be read by now and could not before."""
        if not self._is_zstd:
            return self._gzip.decompress(piece)
        text = b""
        while piece:
            if self._zstd.eof:
                self._zstd = ZstdDecompressor()
            text += self._zstd.decompress(piece)
            piece = self._zstd.unused_data if self._zstd.eof else b""
        return text
