"""Row groups of Parquet as messages: a column `value`, as in archives, or rows as JSON objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.keys.errors import JsonInvalid
from tidegate.pipeline.files.block_format import BlockFormat
from tidegate.pipeline.files.objects import Field, beyond_json, joined, objects_of

ROWS_AT_ONCE = 65_536
BYTES_AT_ONCE = 32 * 1024 * 1024
Columns = dict[str, pa.Array]

# What Spark's reader takes for a kind; nested columns are checked value by value.
_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")
_TEXTS = ("string", "binary")
_TAKEN = {
    "string": _TEXTS,
    "binary": _TEXTS,
    "boolean": ("bool",),
    "byte": _INTEGERS,
    "short": _INTEGERS,
    "integer": _INTEGERS,
    "int": _INTEGERS,
    "long": (*_INTEGERS, "uint32", "int64", "duration"),
    "float": ("float",),
    "double": (*_INTEGERS, "float", "double"),
    "date": ("date32",),
    "timestamp": ("timestamp",),
    "timestamp_ntz": ("timestamp", "date32"),
    "decimal": (*_INTEGERS, "uint32", "int64", "uint64", "decimal128"),
}


def parquet_rows(
    source: Any, block_format: BlockFormat, start: int, end: int, folder_fields: str
) -> Iterator[Columns]:
    """Yield the rows of the row groups that begin in a block, as columns of PUBLISHED.

    Raises:
        ArrowException, OSError: the file cannot be read.
        ValueError: it has a column of another kind.
    """
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        groups = range(file.metadata.num_row_groups)
        for group in groups:
            found = file.metadata.row_group(group)
            if start <= _begin(found) < end:
                row_bytes = found.total_byte_size // max(1, found.num_rows) + 1
                size = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // row_bytes))
                # One by one: a file may have more groups than a worker has memory for.
                for batch in file.iter_batches(size, row_groups=[group], use_threads=False):
                    yield _published(batch, block_format, folder_fields)


def _begin(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    pages = (first.dictionary_page_offset, first.data_page_offset)
    return min(int(page) for page in pages if page)


def _published(batch: pa.RecordBatch, block_format: BlockFormat, folder_fields: str) -> Columns:
    columns = {field.name: _column(batch, field) for field in block_format.fields}
    kinds = {field.name: field.kind for field in block_format.fields}
    if kinds.get("value") not in _TEXTS:
        bodies = objects_of(block_format.fields, [*columns.values()], folder_fields).view(
            pa.binary()
        )
        beyond = beyond_json(block_format.fields, [*columns.values()])
        if beyond is None or block_format.is_history:
            return {"body": bodies}
        return {"body": bodies, "refused": joined(f"{JsonInvalid.code}: ", beyond)}
    values = columns["value"].cast(pa.binary())
    is_gone = values.is_null()
    times = columns.get("timestamp_ms", pa.nulls(len(batch), pa.int64()))
    if block_format.is_history:
        removed = columns.get("reason", pa.nulls(len(batch)))
        is_message = pc.or_(values.is_valid(), removed.is_null())
        return {
            "time_ms": _milliseconds(times).filter(is_message),
            "body": values.filter(is_message),
        }

    def of_removal(name: str) -> pa.Array:
        column = columns[name].cast(pa.string()) if kinds.get(name) == "string" else None
        return (
            pa.nulls(len(batch), pa.string())
            if column is None
            else pc.if_else(is_gone, column, None)
        )

    keys = of_removal("key")
    is_nothing = pc.and_(is_gone, keys.is_null())
    return {
        "time_ms": _milliseconds(times),
        "key": keys,
        "body": pc.if_else(is_nothing, b"null", values),
        "removed": of_removal("reason"),
    }


def _milliseconds(times: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(times.type):  # as Spark makes numbers of times: of seconds
        return pc.divide(times.cast(pa.timestamp("s"), safe=False).cast(pa.int64()), 1)
    return times.cast(pa.int64(), safe=False)


def _column(batch: pa.RecordBatch, field: Field) -> pa.Array:
    """Return a column by its name, in any case of letters; nulls if there is none.

    Raises:
        ValueError: it is of another kind.
    """
    names = batch.schema.names
    same = (
        [field.name]
        if field.name in names
        else [name for name in names if name.lower() == field.name.lower()]
    )
    if len(same) > 1:
        raise ValueError(f"has the columns {', '.join(same)}, which differ in case alone")
    if not same:
        return pa.nulls(len(batch))
    column = batch.column(same[0])
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(field.kind, str):
        found = _plain_name(column.type)
        if found != "null" and found not in _TAKEN[field.kind.partition("(")[0]]:
            raise ValueError(f"column {field.name} is {column.type}, expected {field.kind}")
    return column


def _plain_name(kind: pa.DataType) -> str:
    name = str(kind).partition("[")[0].partition("(")[0]
    return {
        "large_string": "string",
        "string_view": "string",
        "large_binary": "binary",
        "binary_view": "binary",
        "fixed_size_binary": "binary",
        "decimal32": "decimal128",
        "decimal64": "decimal128",
    }.get(name, name)
