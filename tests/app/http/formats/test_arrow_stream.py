"""Arrow's IPC stream: its batches and the texts in it."""

from __future__ import annotations

import pyarrow as pa

from tests.app.http.formats.reading import body_of, frames
from tidegate.app.http.formats.arrow_stream import BATCH_ROWS, ArrowEncoder
from tidegate.app.http.formats.columns import ColumnType, Kind
from tidegate.conflation.steps import finished


def batches_of(body: bytes) -> list[int]:
    return [batch.num_rows for batch in pa.ipc.open_stream(body)]


def test_batches_are_large() -> None:
    small = [b'{"k":%d}' % number for number in range(2 * BATCH_ROWS + 1)]
    assert batches_of(body_of("arrow", frames(small))) == [BATCH_ROWS, BATCH_ROWS, 1]
    large = [b'{"k":"%b"}' % (b"a" * 200_000)] * 12
    assert batches_of(body_of("arrow", frames(large))) == [6, 6]


def test_each_piece_is_a_batch_where_that_is_asked_for() -> None:
    encoder = ArrowEncoder({"k": ColumnType(Kind.INT64)}, batch_rows=1)
    pieces = [finished(encoder.piece(records)) for records in ([b'{"k":1}'], [b'{"k":2}', b"{}"])]
    assert batches_of(b"".join([encoder.begin(), *pieces, encoder.end()])) == [1, 2]


def test_texts_of_json_are_marked() -> None:
    body = body_of("arrow", frames([b'{"o":{"a": 1.50},"t":"a","m":1}', b'{"m":"1"}']))
    table = pa.ipc.open_stream(body).read_all()
    marked = {field.name: field.metadata for field in table.schema}
    json = {b"content-type": b"application/json"}
    assert marked == {"o": json, "t": None, "m": json}
    assert table.to_pylist() == [
        {"o": '{"a": 1.50}', "t": "a", "m": "1"},
        {"o": None, "t": None, "m": '"1"'},
    ]
