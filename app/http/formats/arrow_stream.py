"""Arrow's IPC stream. Importing it loads pyarrow, which is optional and takes half a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from tidegate.app.http.formats.columns import ColumnType, Kind, cells_of
from tidegate.app.http.formats.records import CELLS_AT_ONCE, members_of
from tidegate.conflation.steps import Steps
from tidegate.keys.jsontext import NULL

BATCH_ROWS: Final = 8_000
BATCH_BYTES: Final = 1 << 20
"""Of a record batch, unless one piece has more: readers are several times as slow on small ones."""
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
JSON_METADATA: Final = {"content-type": "application/json"}
"""Of a column of JSON texts, which a reader may decode."""

_TYPES: Final = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.STRING: pa.string(),
    Kind.INT64: pa.int64(),
    Kind.UINT64: pa.uint64(),
    Kind.DOUBLE: pa.float64(),
    Kind.JSON: pa.string(),
}
_decode = msgspec.json.Decoder(list[Any]).decode
_decode_decimals = msgspec.json.Decoder(list[Any], float_hook=Decimal).decode

pa.array([None])  # the first array imports pandas, where that is installed


class ArrowEncoder:
    """A schema, and record batches of several pieces.

    Args:
        columns: the columns by name.
        batch_rows: a batch is written once it has so many rows; with 1, each piece is a batch.
    """

    content_type = "application/vnd.apache.arrow.stream"

    def __init__(self, columns: Mapping[str, ColumnType], *, batch_rows: int = BATCH_ROWS) -> None:
        self._columns = columns
        self._batch_rows = batch_rows
        self._schema = pa.schema([_field(name, each) for name, each in columns.items()])
        self._held: list[pa.RecordBatch] = []

    def begin(self) -> bytes:
        """Return the schema."""
        return _message(self._schema)

    def piece(self, records: Sequence[bytes]) -> Steps[bytes]:
        """Return a batch if there are enough rows; a piece of many columns takes several steps."""
        found = members_of(records)
        arrays: list[pa.Array] = []
        cells = 0
        for field, (name, column) in zip(self._schema, self._columns.items(), strict=True):
            arrays.append(pa.array(_values(cells_of(found, name), column.kind), field.type))
            cells += len(found)
            if cells > CELLS_AT_ONCE:
                yield
                cells = 0
        self._held.append(pa.record_batch(arrays, schema=self._schema))
        rows = sum(batch.num_rows for batch in self._held)
        size = sum(batch.nbytes for batch in self._held)
        if rows < self._batch_rows and size < BATCH_BYTES:
            return b""
        yield
        return self._joined()

    def end(self) -> bytes:
        """Return the last batch, and the mark of the stream's end."""
        return self._joined() + END_OF_STREAM

    def _joined(self) -> bytes:
        """Return what is held as one batch."""
        held, self._held = self._held, []
        table = pa.Table.from_batches(held, self._schema).combine_chunks()
        return b"".join(map(_message, table.to_batches()))


def _field(name: str, column: ColumnType) -> pa.Field:
    if column.kind is Kind.DECIMAL:
        return pa.field(name, pa.decimal128(column.precision, column.scale))
    metadata = JSON_METADATA if column.kind is Kind.JSON else None
    return pa.field(name, _TYPES[column.kind], metadata=metadata)


def _values(texts: Sequence[msgspec.Raw], kind: Kind) -> list[Any]:
    if kind is Kind.JSON:
        return [None if text == NULL else text.decode() for text in map(bytes, texts)]
    decode = _decode_decimals if kind is Kind.DECIMAL else _decode
    return decode(b"[" + b",".join(texts) + b"]")


def _message(part: Any) -> bytes:
    """Return a schema or a batch as an encapsulated message of the IPC format."""
    message: bytes = part.serialize().to_pybytes()
    return message
