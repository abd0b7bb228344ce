"""A recorded history as lines in order of publication: NDJSON, gzipped, a folder, or Parquet.

Files count in the order of their names, lines in the order of the file. Spark may cut a file in
blocks; `file` and `block` locate a line, and a task reads each block from beginning to
end. A row of Parquet is a message: its column `value`, if there is one of texts, else the row as
a JSON object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.rows import file_and_block, file_name, part_of
from tidegate.pipeline.errors import HistoryInvalid, HistoryUnreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


# --- rows of columns as JSON objects, without nulls
#
# JSON has no NaN and no infinity, so rows with such numbers must be refused.

SHOWN_MAX = 200
# Always six digits, so that texts sort as times do.
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def quoted(name: str) -> str:
    """Return a column's name as SQL takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def as_json(columns: Sequence[Column]) -> Column:
    """Return the object of these columns, in their order; times to the microsecond."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    return F.to_json(F.struct(*columns), _TIMES)


def beyond_json(schema: StructType, columns: Sequence[Column]) -> Column:
    """Return which column has a number that JSON lacks, as a reason; null if none has."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    reasons = [
        F.when(_is_beyond(field.dataType, column), f"{field.name[:SHOWN_MAX]} is NaN or infinite")
        for field, column in zip(schema, columns, strict=True)
    ]
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def _is_beyond(kind: DataType, value: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
    from pyspark.sql import types as T  # noqa: N812 - Spark's own custom

    match kind:
        case T.FloatType() | T.DoubleType():
            return F.isnan(value) | (F.abs(value) == float("inf"))
        case T.ArrayType():
            return F.exists(value, lambda one: _is_beyond(kind.elementType, one))
        case T.MapType():
            return F.exists(F.map_values(value), lambda one: _is_beyond(kind.valueType, one))
        case T.StructType():
            fields = [_is_beyond(one.dataType, value.getField(one.name)) for one in kind]
            return reduce(or_, fields, F.lit(False))
        case _:
            return F.lit(False)


SCHEMA = "file string, block long, line binary, time_ms long"
SPACE = " \t\r\n"


def check_history(path: Path) -> None:
    """Check a history before Spark is started, which takes seconds.

    Raises:
        HistoryUnreadable: nothing there, nothing in it, or Parquet beside other files.
    """
    if not path.exists():
        raise HistoryUnreadable(f"{path}: there is no such file or folder")
    kinds = {each.suffix == ".parquet" for each in _files(path)}
    if not kinds:
        raise HistoryUnreadable(f"{path}: there is no file in this folder")
    # Two kinds would be two readers, and no order between their messages.
    if len(kinds) > 1:
        raise HistoryUnreadable(f"{path}: holds Parquet and other files; plan them apart")


def is_parquet(path: Path) -> bool:
    """Return whether a history is Parquet, by its file names; `check_history` has accepted it."""
    # The first file is enough, since all are of one kind.
    return next(_files(path)).suffix == ".parquet"


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a history that Spark would read."""
    if path.is_file():
        yield path
    else:
        inside = (each for each in path.rglob("*") if each.is_file())
        yield from (each for each in inside if not is_hidden(each.relative_to(path)))


def read_history(spark: SparkSession, path: Path) -> DataFrame:
    """Return the lines of a history as `SCHEMA`; only a journal's archive has `time_ms`.

    Raises:
        HistoryUnreadable: as `check_history`, or Spark cannot make sense of it.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    place: list[Column | str] = [
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
    ]
    check_history(path)
    if not is_parquet(path):
        # By default Spark ends lines at \r too, which may stand between the tokens of a message.
        reader = spark.read.option("lineSep", "\n").option("recursiveFileLookup", True)
        lines = reader.format("text").load(_address(path))
        return lines.select(*place, F.col("value").cast("binary").alias("line"), _no_time())
    try:
        # Recursive lookup takes folders such as date=… as plain folders and adds no columns.
        rows = spark.read.option("recursiveFileLookup", True).parquet(_address(path))
    except Exception as error:  # whatever Spark has to say of a file that is none of Parquet
        raise HistoryUnreadable(f"{path}: Spark cannot read it as Parquet") from error
    kinds = dict(rows.dtypes)
    if kinds.get("value") in {"string", "binary"}:
        line = F.col("value").cast("binary")
        time = F.col("timestamp_ms").cast("long") if "timestamp_ms" in kinds else _no_time()
        if "reason" in kinds:  # an archive: its removals are no messages
            rows = rows.where("value IS NOT NULL OR reason IS NULL")
    else:
        line = as_json([F.col(quoted(name)) for name in rows.columns]).cast("binary")
        time = _no_time()
    return rows.select(*place, line.alias("line"), time.alias("time_ms"))


def lines_by_block(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield a task's lines in pieces of one block, with the number of each piece's first line.

    Lines count from 0 in each block.
    """
    before, row = None, 0
    for batch in batches:
        for start, length in _stretches(batch):
            piece = batch.slice(start, length)
            here = (piece.column("file")[0].as_py(), piece.column("block")[0].as_py())
            row = row if here == before else 0
            before = here
            yield part_of(*here), row, piece
            row += length


def stripped(lines: pa.Array) -> pa.Array:
    """Return lines without white space around them and without line breaks inside.

    Raises:
        pyarrow.ArrowInvalid: one is no UTF-8.
    """
    texts = pc.ascii_trim(lines.cast(pa.string()), characters=SPACE)
    if pc.any(pc.match_substring(texts, "\n")).as_py():
        texts = pc.replace_substring(texts, "\n", " ")
    return texts.cast(pa.binary())


def wrong_line(part: str, number: int, reason: str) -> HistoryInvalid:
    """Return the error for a line, from 1, of a part as `lines_by_block` names it."""
    file, start = file_and_block(part)
    name = file_name(file).rpartition("/")[2] or "messages"
    place = f"line {number}" if start == 0 else f"line {number} after byte {start}"
    return HistoryInvalid(f"{name}, {place}: {reason}")


def _address(path: Path) -> str:
    """Return the address in a form in which Spark takes `=` and blanks as they are."""
    return f"file://{path.absolute()}"


def is_hidden(path: Path) -> bool:
    """Return whether Spark skips a file by its name or its folder's."""
    return any(part[0] in "._" for part in path.parts)


def _no_time() -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    return F.lit(None).cast("long").alias("time_ms")


def _stretches(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """Return first row and length of each stretch of rows of one block."""
    rows = batch.num_rows
    if rows == 0:
        return []
    columns = [batch.column(name) for name in ("file", "block")]
    changed = pc.or_(*(pc.not_equal(column[1:], column[:-1]) for column in columns))
    cuts = [0, *(at + 1 for at in pc.indices_nonzero(changed).to_pylist()), rows]
    return [(low, high - low) for low, high in pairwise(cuts)]
