"""Records become bytes in bounded pieces and steps, as the reader takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from tests.app.http.formats.reading import frames, payload
from tidegate.app.http.answers import PIECE_BYTES
from tidegate.app.http.formats.arrow_stream import ArrowEncoder
from tidegate.app.http.formats.columns import columns_in, names_in
from tidegate.app.http.formats.csv_text import CsvEncoder
from tidegate.app.http.formats.records import (
    BYTES_AT_ONCE,
    CELLS_AT_ONCE,
    ROWS_AT_ONCE,
    JsonEncoder,
    NdjsonEncoder,
    encoded,
    members_of,
    pieces,
)
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import finished

SMALL = [b'{"k":%d}' % number for number in range(2 * ROWS_AT_ONCE + 7)]
FIELDS = 900
WIDE = [b"{%b}" % b",".join(b'"%d":1' % name for name in range(FIELDS))] * 36
"""One piece with 32,400 values."""


def steps_of(steps: Generator[None, None, Any]) -> int:
    """How many steps work has."""
    return 1 + sum(1 for _ in steps)


def test_pieces_are_bounded_by_rows_and_by_bytes() -> None:
    assert [len(piece) for piece in pieces(frames(SMALL))] == [ROWS_AT_ONCE, ROWS_AT_ONCE, 7]
    third, whole = b"a" * (BYTES_AT_ONCE // 3), b"b" * (BYTES_AT_ONCE + 1)
    texts = [third, third, third, third, whole, whole, third]
    assert [len(piece) for piece in pieces(frames(texts))] == [3, 1, 1, 1, 1]
    assert list(pieces([])) == []


def test_records_of_many_fields_take_several_steps() -> None:
    rows = frames(WIDE)
    assert len(list(pieces(rows))) == 1
    columns = finished(columns_in(rows, payload, {}))
    pauses = len(WIDE) * FIELDS // (CELLS_AT_ONCE + FIELDS)
    for steps in (
        columns_in(rows, payload, {}),
        ArrowEncoder(columns).piece(WIDE),
        CsvEncoder(finished(names_in(rows, payload, {}))).piece(WIDE),
    ):
        assert steps_of(steps) > pauses > 1


@pytest.mark.parametrize("encoder", [NdjsonEncoder(), JsonEncoder(), CsvEncoder(["k"])])
async def test_only_what_the_reader_takes_is_encoded(encoder: Any) -> None:
    """So a slow reader costs one piece, whatever there is."""
    asked: list[Frame] = []

    def text(frame: Frame) -> bytes:
        asked.append(frame)
        return frame.payload

    body = encoded(encoder, frames(SMALL), text)
    if encoder.begin():
        assert await anext(body) == encoder.begin()
    for count in (1, 2):
        assert await anext(body)
        await asyncio.sleep(0.01)
        assert len(asked) == count * ROWS_AT_ONCE
    await body.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_a_peer_that_reads_nothing_is_written_little() -> None:
    """A batch of Arrow has up to a megabyte."""
    rows = frames([b'{"k":"%b"}' % (b"a" * 100_000)] * 20)
    encoder = ArrowEncoder(finished(columns_in(rows, payload, {})))
    parts = [part async for part in encoded(encoder, rows, payload)]
    assert sum(map(len, parts)) > 2_000_000
    assert max(map(len, parts)) <= PIECE_BYTES


async def test_other_work_goes_on_between_pieces() -> None:
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            await asyncio.sleep(0)
            iterations += 1

    counting = asyncio.create_task(count())
    found = [piece async for piece in encoded(NdjsonEncoder(), frames(SMALL), payload)]
    counting.cancel()
    assert len(b"".join(found).splitlines()) == len(SMALL)
    assert iterations >= len(list(pieces(frames(SMALL)))) - 1


def test_the_last_of_several_members_of_one_name_counts() -> None:
    [found] = members_of([b'{"a":1,"b":2,"a":3}'])
    assert {name: bytes(text) for name, text in found.items()} == {"a": b"3", "b": b"2"}
