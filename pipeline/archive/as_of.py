"""The state of the world as of a past time, by Spark: for archives that no gateway should read.

sow_as_of(spark, "archive", "ticks", "2026-11-21T12:00:00Z")
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from tidegate.keys.archived import Part, reach
from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.time import parse_time
from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.archive.recorded import RecordedClock
from tidegate.pipeline.errors import ArchiveUnusable, UsageInvalid


def sow_as_of(
    spark: SparkSession, archive: str | Path, topic: str, time: str | int | datetime
) -> DataFrame:
    """Return the newest message of each key, of those published up to a time.

    Columns: `key`, `value` (JSON texts), `epoch`, `position`, `timestamp_ms`; in no order. As
    `GET /v1/topics/{topic}/sow?as_of=` has it, but only from the archive.

    Args:
        spark: the session.
        archive: the folder that `tidegate pipeline journal --to` fills.
        topic: its name.
        time: ISO 8601 or a datetime (UTC without a zone), or milliseconds since 1970.

    Raises:
        UsageInvalid: the time is none.
        ArchiveUnusable: the archive does not reach back that far, or is damaged.
    """
    time_ms = _milliseconds(time)
    folder = TopicFolder(Path(archive), topic)
    parts = _until(folder, time_ms)
    position = place_at(folder.file(parts[-1]), parts[-1], time_ms)
    files = [f"file://{folder.file(part).absolute()}" for part in parts]
    rows = spark.read.parquet(*files).where(F.col("position") <= position)
    columns = ("position", "timestamp_ms", "value", "epoch")
    # max_by aggregates in each task first, so the shuffle moves a row for each key and task.
    newest = rows.groupBy("key").agg(F.max_by(F.struct(*columns), "position").alias("newest"))
    # A removal is the newest row of its key and has no value.
    there = newest.where("newest.value IS NOT NULL")
    return there.select(
        "key", "newest.value", "newest.epoch", "newest.position", "newest.timestamp_ms"
    )


def _milliseconds(time: object) -> int:
    if isinstance(time, int):
        return time
    try:
        return parse_time(time.isoformat() if isinstance(time, datetime) else str(time))
    except TextInvalid:
        raise UsageInvalid(
            f"expected 2026-11-21T21:37:10Z or milliseconds, not {time!r:.50}"
        ) from None


def place_at(path: Path, part: Part, time_ms: int) -> int:
    """Return the last position of a part at a time, by the clock that never runs back.

    Raises:
        ArchiveUnusable: it is not a complete Parquet file.
    """
    clock, place = RecordedClock(part.stamp_ms), part.first - 1
    # Two narrow columns of one file: values stay unread until Spark reads them.
    names = ["position", "timestamp_ms"]
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=names):
                columns = (batch.column(name).to_pylist() for name in names)
                for position, published_ms in zip(*columns, strict=True):
                    if clock.at(published_ms) > time_ms:
                        return place
                    place = position
    except pa.ArrowException as error:
        raise ArchiveUnusable(f"{path}: cannot be read: {error}") from None
    return place


def _until(folder: TopicFolder, time_ms: int) -> list[Part]:
    """Return the parts of the epoch that was current at a time, from its first message on.

    For a time before the topic's first message return the part that begins with it: the state
    of the world was empty then.
    """
    parts = folder.parts()
    then = [part for part in parts if part.stamp_ms <= time_ms] or parts[:1]
    epoch = then[-1].epoch if then else ""
    found = reach(then, epoch)
    if found is None or found[0] != 1:
        raise ArchiveUnusable(f"{folder.path}: does not reach back to this time")
    return [part for part in then if part.epoch == epoch]
