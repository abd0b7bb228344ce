"""A recorded history as lines in order of publication: NDJSON, gzipped, a folder, or Parquet.

Files count in the order of their names, lines in the order of the file. Spark may cut a file in
blocks; `file` and `block` locate a line, and a task reads each block from beginning to
end. A row of Parquet is a message: its column `value`, if there is one of texts, else the row as
a JSON object.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.pipeline.columns.blocks import block_count, blocks_of
from tidegate.pipeline.columns.rows import shuffle_partitions
from tidegate.pipeline.errors import HistoryUnreadable
from tidegate.pipeline.files.block_format import BlockFormat, fields_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_history(path: Path) -> None:
    """Check a history before Spark is started, which takes seconds.

    Raises:
        HistoryUnreadable: nothing there, nothing in it, or Parquet together with other files.
    """
    if not path.exists():
        raise HistoryUnreadable(f"{path}: there is no such file or folder")
    kinds = {each.suffix == ".parquet" for each in history_files(path)}
    if not kinds:
        raise HistoryUnreadable(f"{path}: there is no file in this folder")
    # Two kinds would be two readers, and no order between their messages.
    if len(kinds) > 1:
        raise HistoryUnreadable(f"{path}: holds Parquet and other files; plan them apart")


def is_parquet(path: Path) -> bool:
    """Return whether a history is Parquet, by its file names; `check_history` has accepted it."""
    # The first file is enough, since all are of one kind.
    return history_files(path)[0].suffix == ".parquet"


def history_files(path: Path) -> list[Path]:
    """Return the files of a history that Spark would read, in the order of their names."""
    if path.is_file():
        return [path]
    inside = [each for each in path.rglob("*") if each.is_file()]
    return sorted(each for each in inside if not _is_hidden(each.relative_to(path)))


def read_history(spark: SparkSession, path: Path) -> DataFrame:
    """Return a history as blocks (`blocks.BLOCKS`), which tasks read.

    Only a journal's archive has `time_ms`.

    Raises:
        HistoryUnreadable: as `check_history`, or Spark cannot make sense of it.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    check_history(path)
    block_format = None
    if is_parquet(path):
        try:
            # Recursive lookup takes folders such as date=… as plain folders and adds no columns.
            rows = spark.read.option("recursiveFileLookup", True).parquet(_address(path))
        except Exception as error:  # whatever Spark has to say of a file that is none of Parquet
            raise HistoryUnreadable(f"{path}: Spark cannot read it as Parquet") from error
        block_format = BlockFormat("parquet", fields_of(rows.schema.json()), is_history=True)
    found = [(each.absolute().as_uri(), each.stat().st_size) for each in history_files(path)]
    files = spark.createDataFrame(found, "file string, size long")
    tasks = min(shuffle_partitions(spark), sum(block_count(*each) for each in found))
    return blocks_of(files, F.col("file"), F.col("size"), max(1, tasks), block_format=block_format)


def _address(path: Path) -> str:
    """Return the address in a form in which Spark takes `=` and blanks as they are."""
    return f"file://{path.absolute()}"


def _is_hidden(path: Path) -> bool:
    """Return whether Spark skips a file by its name or its folder's."""
    return any(part[0] in "._" for part in path.parts)
