"""Blocks that many streams send, the streams that contain them, and which coding is chosen."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compressed import Decoder, zstd_decompressed
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.app.streams.compression import (
    DEFLATED_BYTES_MIN,
    Coding,
    GzipStream,
    ZstdStream,
    block,
    encoder_of,
    negotiate,
)

CODINGS = (Coding.GZIP, Coding.ZSTD)

TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(DEFLATED_BYTES_MIN - 2, 70_000).map(lambda size: b'{"k":1}' * (size // 7)),
    ),
    max_size=8,
)


@examples(20)
@given(TEXTS)
def test_a_stream_of_blocks_is_gzip(texts: list[bytes]) -> None:
    stream = GzipStream()
    sent = stream.header + b"".join(map(stream.block, texts)) + stream.end()
    assert gzip.decompress(sent) == b"".join(texts)


@examples(20)
@given(TEXTS)
def test_a_stream_of_frames_is_zstd(texts: list[bytes]) -> None:
    texts = [b"event: hello\n\n", *texts]  # no stream is without it
    stream = ZstdStream()
    sent = stream.header + b"".join(map(stream.block, texts)) + stream.end()
    assert zstd_decompressed(sent) == b"".join(texts)


@pytest.mark.parametrize("coding", CODINGS)
@examples(20)
@given(texts=TEXTS)
def test_each_text_is_readable_once_its_block_is_there(texts: list[bytes], coding: Coding) -> None:
    decoder = Decoder(coding)
    encoder = encoder_of(coding)
    assert encoder is not None
    assert decoder.decompress(encoder.header) == b""
    for text in texts:
        assert decoder.decompress(block(text, coding)) == text


@pytest.mark.parametrize("text", [b": heartbeat\n\n", b"data: 1\n\n" * 100], ids=["short", "long"])
def test_a_block_of_gzip_ends_with_a_flush(text: bytes) -> None:
    """Go's reader hands on what it has at an empty stored block, and not before."""
    assert block(text, Coding.GZIP).endswith(b"\x00\x00\xff\xff")


def test_a_block_is_the_same_in_each_stream_whatever_came_before() -> None:
    shared = b'data: {"k":1}\n\n' * 100
    early, late = GzipStream(), GzipStream()
    early_bytes = early.header + early.block(shared) + block(shared, Coding.GZIP)
    late_bytes = late.header + block(shared, Coding.GZIP)
    early.add_to_checksum(shared)
    late.add_to_checksum(shared)
    assert gzip.decompress(early_bytes + early.end()) == shared * 2
    assert gzip.decompress(late_bytes + late.end()) == shared


@pytest.mark.parametrize("coding", CODINGS)
def test_what_repeats_becomes_several_times_shorter(coding: Coding) -> None:
    rows = b"".join(b'data: {"tickerId":"T%d","price":%d.25}\n\n' % (n, n) for n in range(50))
    assert len(block(rows, coding)) * 4 < len(rows)


def test_short_texts_are_stored() -> None:
    text = b": heartbeat\n\n"
    assert len(block(text, Coding.GZIP)) == len(text) + 10
    assert len(block(text, Coding.ZSTD)) == len(text) + 9


@rule("connection-5")
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", Coding.IDENTITY),
        ("identity", Coding.IDENTITY),
        ("br, deflate", Coding.IDENTITY),
        ("gzip", Coding.GZIP),
        ("zstd", Coding.ZSTD),
        ("GZip", Coding.GZIP),
        ("gzip, deflate, br, zstd", Coding.ZSTD),
        ("zstd;q=0.5, gzip;q=0.8", Coding.GZIP),
        ("gzip;q=0.5,zstd ; q=0.501", Coding.ZSTD),
        ("zstd;q=0, gzip;q=0.001", Coding.GZIP),
        ("zstd;q=0.000, gzip;q=0.", Coding.IDENTITY),
        ("*", Coding.GZIP),
        ("*, zstd;q=0.9", Coding.GZIP),
        ("gzip;q=0.0, *", Coding.IDENTITY),
        ("*;q=0", Coding.IDENTITY),
        ("*;q=0, zstd", Coding.ZSTD),
        ("identity;q=0", Coding.IDENTITY),
        ("identity, gzip;q=0.9, zstd;q=0.9", Coding.IDENTITY),
        ("identity, gzip", Coding.GZIP),
        ("identity;q=0.5, zstd;q=0.6", Coding.ZSTD),
        ("gzip;level=9, zstd;q=0.9", Coding.GZIP),
        (";q=1,,", Coding.IDENTITY),
    ],
)
def test_the_coding_with_the_most_weight_is_sent(accepted: str, coding: Coding) -> None:
    assert negotiate(accepted) is coding
