"""Blocks that many streams send, and the gzip stream that each of them is a part of."""

from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.app.delivery.compression import DEFLATED_BYTES_MIN, GzipStream, block

TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(DEFLATED_BYTES_MIN - 2, 70_000).map(lambda size: b'{"k":1}' * (size // 7)),
    ),
    max_size=8,
)


@examples(100, nightly=2_000)
@given(TEXTS)
def test_a_stream_of_blocks_is_gzip(texts: list[bytes]) -> None:
    stream = GzipStream()
    sent = stream.header + b"".join(map(stream.block, texts)) + stream.end()
    assert gzip.decompress(sent) == b"".join(texts)


@examples(100, nightly=2_000)
@given(TEXTS)
def test_each_text_is_readable_once_its_block_is_there(texts: list[bytes]) -> None:
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    assert decoder.decompress(GzipStream.header) == b""
    for text in texts:
        assert decoder.decompress(block(text)) == text


def test_a_block_is_the_same_in_each_stream_whatever_came_before() -> None:
    shared = b'data: {"k":1}\n\n' * 100
    early, late = GzipStream(), GzipStream()
    early_bytes = early.header + early.block(shared) + block(shared)
    late_bytes = late.header + block(shared)
    early.note(shared)
    late.note(shared)
    assert gzip.decompress(early_bytes + early.end()) == shared * 2
    assert gzip.decompress(late_bytes + late.end()) == shared


def test_what_repeats_becomes_several_times_shorter() -> None:
    rows = b"".join(b'data: {"tickerId":"T%d","price":%d.25}\n\n' % (n, n) for n in range(50))
    assert len(block(rows)) * 4 < len(rows)


def test_short_texts_are_stored() -> None:
    assert len(block(b": heartbeat\n\n")) == len(b": heartbeat\n\n") + 5
