"""A recorded history as lines in order of publication: NDJSON, gzipped, a folder, or Parquet.

Files count in the order of their names, lines in the order of the file. Spark may cut a file in
blocks; `file` and `block` locate a line, and a task reads each block from beginning to
end. A row of Parquet is a message: its column `value`, if there is one of texts, else the row as
a JSON object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.pipeline.columns.blocks import block_count, blocks_of
from tidegate.pipeline.columns.rows import (
    file_and_block,
    file_name,
    published,
    shuffle_partitions,
)
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
    """Return a history as PUBLISHED rows, of text as blocks (`blocks.BLOCKS`).

    Only a journal's archive has `time_ms`.

    Raises:
        HistoryUnreadable: as `check_history`, or Spark cannot make sense of it.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    check_history(path)
    if not is_parquet(path):
        found = [(each.absolute().as_uri(), each.stat().st_size) for each in sorted(_files(path))]
        files = spark.createDataFrame(found, "file string, size long")
        tasks = min(shuffle_partitions(spark), sum(block_count(*each) for each in found))
        return blocks_of(files, F.col("file"), F.col("size"), max(1, tasks))
    try:
        # Recursive lookup takes folders such as date=… as plain folders and adds no columns.
        rows = spark.read.option("recursiveFileLookup", True).parquet(_address(path))
    except Exception as error:  # whatever Spark has to say of a file that is none of Parquet
        raise HistoryUnreadable(f"{path}: Spark cannot read it as Parquet") from error
    kinds, time_ms = dict(rows.dtypes), F.lit(None)
    if kinds.get("value") in {"string", "binary"}:
        body = F.col("value")
        time_ms = F.col("timestamp_ms") if "timestamp_ms" in kinds else time_ms
        if "reason" in kinds:  # an archive: its removals are no messages
            rows = rows.where("value IS NOT NULL OR reason IS NULL")
    else:
        body = as_json([F.col(quoted(name)) for name in rows.columns])
    return published(
        rows,
        file="_metadata.file_path",
        block="_metadata.file_block_start",
        time_ms=time_ms,
        body=body.cast("binary"),
    )


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
