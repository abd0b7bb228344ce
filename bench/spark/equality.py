"""`python -m bench equality`: a day of ticks through running streams and through the engine.

The day is cut into files, ten a micro-batch, and conflated in event time to the end: the whole day
in both paces, and its first half million messages with a filter, reducers, removals and late
messages. All rows are compared: key, positions of the first and last message, count, value, due
time, and the reason of a removal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench.spark.ticks import lines_of, recorded_day, set_file_time, write_files
from tests.pipeline.event_time import Timed, event_deliveries
from tests.pipeline.mixed_ticks import KEY, REDUCERS, WANTED, mixed, timed
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.intervals import Pace
from tidegate.pipeline.sinks.sink import Batch, BatchResult
from tidegate.pipeline.spark.session import open_session
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 120  # so small that Spark does not cut them: positions are then lines of a file
MADE = 100_000
MIXED = 500_000
COLUMNS = ["key", "file", "position", "first", "messages", "value", "removed", "due_ns"]
TOML = """\
[pipeline.equality]
key = {key}
interval = "1s"
pace = "{pace}"
time = {{field = "/ts", watermark = "{lateness_ms}ms"}}
files_per_batch = 10
checkpoint = "{name}-checkpoint"
source = {{kind = "files", path = "{name}/*.{ending}"}}
sink = {{topic = "sent"}}
{more}
"""
MORE = "oof = true\nfilter = {wanted!r}\nreduce = {reducers}"

Row = tuple[str, int, int, int, bytes | None, str | None, int]
in_order = itemgetter(0, 2)


@dataclass(frozen=True, slots=True)
class Case:
    """How ticks are conflated; `is_mixed` adds filter, reducers, removals and late messages."""

    pace: Pace
    lateness_ms: int
    is_mixed: bool = False

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{'mixed' if self.is_mixed else 'plain'}-{self.pace}"

    @property
    def options(self) -> str:
        """The options of an equal subscription."""
        plain = f"conflation=1s,pace={self.pace}"
        return f"{plain},reduce={REDUCERS},oof" if self.is_mixed else plain

    @property
    def wanted(self) -> str:
        """The filter."""
        return WANTED if self.is_mixed else ""

    def definition(self, folder: Path) -> StreamDefinition:
        """Return a stream over the files of this name in a folder."""
        fields = {"key": _listed(KEY), "pace": self.pace, "lateness_ms": self.lateness_ms}
        more = MORE.format(wanted=WANTED, reducers=_listed(REDUCERS)) if self.is_mixed else ""
        path = folder / f"{self.name}.toml"
        ending = "parquet" if self.is_mixed else "ndjson"
        path.write_text(TOML.format(name=self.name, more=more, ending=ending, **fields))
        [definition] = read_definitions(path)
        return definition


CASES = (
    Case(Pace.KEY, 2_000),
    Case(Pace.BATCH, 0),
    Case(Pace.KEY, 2_000, is_mixed=True),
    Case(Pace.BATCH, 2_000, is_mixed=True),
)


@dataclass(frozen=True, slots=True)
class Folder:
    """A sink that stores the rows of each batch as Parquet."""

    path: Path

    def prepare(self) -> str:
        """Do nothing: a new folder needs no preparation."""
        return ""

    def write(self, rows: DataFrame, batch: Batch) -> BatchResult:
        """Write the rows in Spark's tasks, under the label of the batch."""
        rows.select(*COLUMNS).write.parquet(str(self.path / batch.label))
        return BatchResult()


def main() -> int:
    """Print the number of rows and if they are equal. Return 1 if they are not."""
    lines = list(ticks())
    spark = open_session("local[2]")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            are_equal = [is_equal(spark, Path(folder), case, lines) for case in CASES]
    finally:
        spark.stop()
    return 0 if all(are_equal) else 1


def is_equal(spark: SparkSession, folder: Path, case: Case, lines: list[bytes]) -> bool:
    """Return whether Spark and the engine deliver the same rows, and print it."""
    messages = mixed(islice(lines, MIXED)) if case.is_mixed else timed(lines)
    size = -(-len(messages) // FILES)
    if case.is_mixed:
        write_files_with_removals(folder / case.name, messages, size)
    else:
        write_files(folder / case.name, lines, size)
    # Sorted by key and last position: rows of several shards have no order among them.
    found = sorted(streamed(spark, folder, case, size), key=in_order)
    expected = sorted(expected_rows(messages, case, size), key=in_order)
    same = found == expected
    print(
        f"{case.name}, watermark {case.lateness_ms} ms: {len(messages):,} messages and removals, "
        f"{len(found):,} rows of Spark, {len(expected):,} of the engine: "
        f"{'equal' if same else 'UNEQUAL'}",
        flush=True,
    )
    return same


def ticks() -> Iterator[bytes]:
    """Yield the recorded day; without it fewer ticks of the same shape, some of them late."""
    day = recorded_day()
    if day is not None:
        yield from lines_of(day)
        return
    for n in range(MADE):
        ts = 34_200_000 + n * 3 - (n % 7 * 400 if n % 50 == 0 else 0)
        yield b'{"tickerId":"T%d","exchange":"%s","type":"quote","bid":%d,"bidSize":%d,"ts":%d}' % (
            n * 7 % 23, b"PQ"[n % 2 : n % 2 + 1], n % 1_000, n % 13 * 100, ts,
        )  # fmt: skip


def write_files_with_removals(folder: Path, messages: list[Timed], size: int) -> None:
    """Write files of `size` rows; a row without a value removes the record of its key."""
    folder.mkdir()
    for number, low in enumerate(range(0, len(messages), size)):
        piece = messages[low : low + size]
        columns = {
            "key": pa.array([None if one.body else one.key for one in piece], pa.string()),
            "value": pa.array([one.body for one in piece], pa.binary()),
        }
        path = folder / f"{number:04}.parquet"
        pq.write_table(pa.table(columns), path)
        set_file_time(path, number)


def streamed(spark: SparkSession, folder: Path, case: Case, size: int) -> Iterator[Row]:
    """Yield the rows that a running stream sends of the files, to the end."""
    sent = folder / f"{case.name}-sent"
    run(spark, case.definition(folder), Folder(sent))
    for row in ds.dataset(sent, format="parquet").to_table().to_pylist():
        last = int(Path(row["file"]).stem) * size + row["position"]
        rest = (row["messages"], row["value"], row["removed"], row["due_ns"])
        yield row["key"], row["first"], last, *rest


def run(spark: SparkSession, definition: StreamDefinition, sink: Folder) -> None:
    """Run a stream into a sink until everything is read and everything held is sent."""
    running = Stream(definition, sink)
    with Checkpoint(definition) as checkpoint:
        running.start(spark, checkpoint, available_now=True)
        assert running.query is not None
        running.query.awaitTermination()
        running.end()


def expected_rows(messages: list[Timed], case: Case, size: int) -> Iterator[Row]:
    """Yield the rows that the engine sends, with the first message's position in its file."""
    rows = event_deliveries(messages, case.lateness_ms, case.options, case.wanted, key=KEY)
    for row in rows:
        first = (row.first - 1) % size + 1
        yield row.key, first, row.last, row.messages, row.value, row.removed, row.due_ns


def _listed(paths: str) -> list[str]:
    return paths[1:-1].split(",")
