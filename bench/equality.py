"""`python -m bench equality`: a day of ticks through running streams and through the engine.

The day is cut into files, ten a micro-batch, and conflated in event time to the end. All rows are
compared: key, position of the first and last message, count, value and due time.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.dataset as ds

from bench.pipeline import DAY
from dev import ROOT
from keys.extract import record_key
from keys.spec import KeySpec
from pipeline.columns.intervals import Pace
from pipeline.definitions.stream import StreamDefinition, read_definitions
from pipeline.session import open_session
from pipeline.sinks.sink import Batch, Receipt
from pipeline.streams.checkpoint import Checkpoint
from pipeline.streams.stream import Stream
from tests.pipeline.reordered import Timed, event_deliveries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 120  # small enough for Spark not to cut them: positions are lines of a file then
MADE = 100_000
KEY = "[/tickerId,/exchange,/type]"
LATENESS_MS = {Pace.KEY: 2_000, Pace.BATCH: 0}
COLUMNS = ["key", "file", "position", "first", "messages", "value", "due_ns"]
TOML = """\
[pipeline.equality]
key = ["/tickerId", "/exchange", "/type"]
interval = "1s"
pace = "{pace}"
time = {{field = "/ts", watermark = "{lateness_ms}ms"}}
files_per_batch = 10
checkpoint = "{pace}"
source = {{kind = "files", path = "in/*.ndjson"}}
sink = {{topic = "sent"}}
"""

Row = tuple[str, int, int, int, bytes, int]


@dataclass(frozen=True, slots=True)
class Folder:
    """A sink that keeps the rows of each batch as Parquet."""

    path: Path

    def prepare(self) -> None:
        """Nothing to make."""

    def write(self, rows: DataFrame, batch: Batch) -> Receipt:
        """Written by the tasks, under the batch's label."""
        rows.select(*COLUMNS).write.parquet(str(self.path / batch.label))
        return Receipt()


def main() -> int:
    """Print how many rows there are and whether they are equal; 1 if they are not."""
    lines = list(ticks())
    messages = timed(lines)
    size = -(-len(lines) // FILES)
    is_equal = True
    spark = open_session("local[2]")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            laid_down(Path(folder, "in"), lines, size)
            for pace, lateness_ms in LATENESS_MS.items():
                found = sorted(streamed(spark, Path(folder), pace, lateness_ms, size))
                expected = sorted(expected_rows(messages, pace, lateness_ms, size))
                same = found == expected
                is_equal &= same
                print(
                    f"pace={pace}, watermark {lateness_ms} ms: {len(lines):,} messages, "
                    f"{len(found):,} rows of Spark, {len(expected):,} of the engine: "
                    f"{'equal' if same else 'UNEQUAL'}",
                    flush=True,
                )
    finally:
        spark.stop()
    return 0 if is_equal else 1


def ticks() -> Iterator[bytes]:
    """The recorded day; where there is none, ticks of its shape, fewer, some of them late."""
    folder = Path(os.environ.get("TIDEGATE_TICKS") or ROOT.parent / "shared" / "data")
    if (folder / DAY).exists():
        with gzip.open(folder / DAY) as day:
            yield from (line.strip() for line in day)
        return
    for n in range(MADE):
        late = n % 7 * 400 if n % 50 == 0 else 0
        yield b'{"tickerId":"T%d","exchange":"%s","type":"quote","bid":%d,"ts":%d}' % (
            n * 7 % 23, b"PQ"[n % 2 : n % 2 + 1], n % 1_000, 34_200_000 + n * 3 - late,
        )  # fmt: skip


def timed(lines: list[bytes]) -> list[Timed]:
    """The lines as messages, numbered from 1, with times and keys of their own."""
    key_of = record_key(KeySpec.parse(KEY))
    decode = msgspec.json.Decoder(dict[str, object]).decode
    return [
        Timed(number, int(str(decode(line)["ts"])), key_of(line), line)
        for number, line in enumerate(lines, start=1)
    ]


def laid_down(folder: Path, lines: list[bytes], size: int) -> None:
    """Files of so many lines, in the order of their times."""
    folder.mkdir()
    for number, low in enumerate(range(0, len(lines), size)):
        path = folder / f"{number:04}.ndjson"
        path.write_bytes(b"\n".join(lines[low : low + size]))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def streamed(
    spark: SparkSession, folder: Path, pace: Pace, lateness_ms: int, size: int
) -> Iterator[Row]:
    """What a running stream sends of the files, to the end."""
    path = folder / f"{pace}.toml"
    path.write_text(TOML.format(pace=pace, lateness_ms=lateness_ms))
    [definition] = read_definitions(path)
    sent = folder / f"{pace}-sent"
    run(spark, definition, Folder(sent))
    for row in ds.dataset(sent, format="parquet").to_table().to_pylist():
        number = int(row["file"].rpartition("/")[2].removesuffix(".ndjson"))
        last = number * size + row["position"]
        yield row["key"], row["first"], last, row["messages"], row["value"], row["due_ns"]


def run(spark: SparkSession, definition: StreamDefinition, sink: Folder) -> None:
    """Run a stream into a sink until all is read and all that was held is sent."""
    running = Stream(definition, sink)
    with Checkpoint(definition) as checkpoint:
        running.start(spark, checkpoint, available_now=True)
        assert running.query is not None
        running.query.awaitTermination()
        running.end()


def expected_rows(messages: list[Timed], pace: Pace, lateness_ms: int, size: int) -> Iterator[Row]:
    """What the engine sends; of the first message the place in its file."""
    options = f"conflation=1s,pace={pace}"
    for row in event_deliveries(messages, lateness_ms, options, key=KEY):
        first = (row.first - 1) % size + 1
        yield row.key, first, row.last, row.messages, row.value or b"", row.due_ns
