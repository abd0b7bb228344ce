"""Lines of CSV as rows: those that are none keep their bytes, and are refused with a reason.

The lines are read as texts, since Spark's own reader of CSV makes valid UTF-8 of anything.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.columns.history import SPACE, lines_by_block, wrong_line
from pipeline.columns.objects import SHOWN_MAX, as_json, beyond_json, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from pipeline.definitions.files import FilesSource

REFUSED = "_tidegate_refused"  # where Spark tells of a line that it could not read
LINE = ("file", "block", "position", "line")


def csv_options(source: FilesSource) -> dict[str, str]:
    """As Spark takes them."""
    return {
        "sep": source.delimiter,
        "header": str(source.has_header).lower(),
        "escape": '"',  # a quote in quotes is doubled
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": REFUSED,
    }


def without_headers(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], delimiter: str
) -> Iterator[pa.RecordBatch]:
    """One task's lines, but for the first of each file; each at its `position` from 1.

    Raises:
        HistoryInvalid: a file's header has other names, or another order.
    """
    headed = ""  # the part whose header was seen
    for part, row, piece in lines_by_block(batches):
        count = pa.array(np.arange(row + 1, row + 1 + len(piece)), pa.int64())
        at = piece.schema.get_field_index("position")
        piece = piece.set_column(at, piece.schema.field(at), count)
        if part != headed and piece.column("block")[0].as_py() == 0:
            lines: list[bytes] = piece.column("line").to_pylist()
            first = next((at for at, line in enumerate(lines) if line.strip()), None)
            if first is None:
                continue
            _require_header(part, row + first + 1, lines[first], names, delimiter)
            headed = part
            piece = piece.slice(first + 1)
        if len(piece):
            yield piece


def _require_header(
    part: str, number: int, line: bytes, names: Sequence[str], delimiter: str
) -> None:
    """As Spark compares them: whatever the case, and where there is none it counts."""
    text = line.decode(errors="replace")
    [cells] = csv.reader([text], delimiter=delimiter)
    found = [cell or f"_c{at}" for at, cell in enumerate(cells)]
    if [name.lower() for name in found] != [name.lower() for name in names]:
        wanted = delimiter.join(names)[:SHOWN_MAX]
        raise wrong_line(part, number, f"the header is {text[:SHOWN_MAX]}, expected {wanted}")


def csv_rows(lines: DataFrame, columns: StructType, source: FilesSource) -> DataFrame:
    """`lines` with what they say as `body`, or why they are `refused`: then the line is the body.

    Of `lines` columns are `file`, `block`, `position`, `line`, and those that folders' names make.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    beside = [F.col(quoted(name)) for name in lines.columns[len(LINE) :]]
    if source.has_header:
        cut = partial(without_headers, names=columns.names, delimiter=source.delimiter)
        lines = lines.mapInArrow(cut, lines.schema)
    text = F.col("line").cast("string")
    is_blank = F.length(F.trim(text, F.lit(SPACE))) == 0  # no message, and nothing to refuse
    rows = lines.withColumn("row", _parsed(text, columns, source))
    rows = rows.withColumn("refused", F.when(~is_blank, _reason(text, columns, source)))
    cells = [F.col("row").getField(name).alias(name) for name in columns.names]
    body = as_json([*cells, *beside]).cast("binary")
    return rows.withColumn(
        "body", F.when(is_blank | F.col("refused").isNotNull(), F.col("line")).otherwise(body)
    )


def _parsed(text: Column, columns: StructType, source: FilesSource) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = StructType([*columns, StructField(REFUSED, StringType())])
    return F.from_csv(text, kinds.toDDL(), csv_options(source))


def _reason(text: Column, columns: StructType, source: FilesSource) -> Column:
    """Why a line is no row of these columns; null if it is one."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = dict(source.schema)  # all are texts where it says nothing
    cells = [F.col("row").getField(name) for name in columns.names]
    of_texts = StructType([StructField(name, StringType()) for name in columns.names])
    texts = _parsed(text, of_texts, source)
    wrong = [
        F.when(
            cell.isNull() & texts.getField(name).isNotNull(),
            f"{name[:SHOWN_MAX]} is no {kinds.get(name)}",
        )
        for name, cell in zip(columns.names, cells, strict=True)
    ]
    no_row = F.lit(f"no row of the columns {', '.join(columns.names)[:SHOWN_MAX]}")
    why = F.when(texts.getField(REFUSED).isNull(), F.coalesce(*wrong, no_row)).otherwise(no_row)
    return (
        F.when(~F.is_valid_utf8(text), "not valid UTF-8")
        .when(F.col("row").getField(REFUSED).isNotNull(), why)
        .otherwise(beyond_json(columns, cells))
    )
