"""Streams with state at many keys, a key that has a third of all messages, and small clusters.

    python -m bench.spark.scale PART... [--keys N] [--text-bytes N]

Parts are `held`, `timed` and `removals` (streams that keep something of every key), `skew` and
`cluster`. Files bring all keys, some in each batch; all of them are kept when two more batches
come with a few messages. Messages are short, or have a text that no compression makes smaller: 5 GB
of state are `held --keys 1600000 --text-bytes 3200`. Processes of a cluster share this machine's
cores: CPU time counts there.
"""

from __future__ import annotations

import argparse
import base64
import random
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.figure import Figure
from bench.spark.processes import Watched, watched
from bench.spark.ticks import set_file_time
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.spark.session import close_session, open_session
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 1_000_000
FILLING_FILES, LATER_FILES, LATER_MESSAGES = 5, 2, 100_000
SKEWED_KEYS, SKEWED_MESSAGES, SKEWED_FILES = 100_000, 3_000_000, 3
TEXTS_BYTES = 16 * 1024 * 1024
FIRST_MS = 1_700_000_000_000
MB = 1024 * 1024
WAYS = {
    # An interval that does not end, so that all keys are held.
    "held": 'pace = "key"\ninterval = "1d"',
    "timed": 'pace = "key"\ninterval = "1d"\ntime = {field = "/ts", watermark = "1s"}',
    "removals": 'interval = "1ms"\noof = true',
}
SKEWED = 'pace = "key"\ninterval = "1s"\ntime = {field = "/ts"}'
REDUCED = SKEWED + '\nreduce = ["/n:sum", "/price:max"]'
DEFINITION = """
[pipeline.{name}]
source = {{kind = "files", path = "{folder}/in/*.ndjson"}}
files_per_batch = 1
key = ["/k"]
sink = {{kind = "parquet", path = "{folder}/out"}}
{way}
"""


class Ran(NamedTuple):
    """The batches of a run: begin and end of each by the clock; the tables after the last one."""

    batches: list[tuple[float, float]]
    tables: list[int]

    @property
    def seconds(self) -> list[float]:
        """How long each batch took."""
        return [end - begin for begin, end in self.batches]


def figures(
    parts: Iterable[str] = ("held", "skew"), keys: int = KEYS, text_bytes: int = 0
) -> Iterator[Figure]:
    """Yield the figures of some parts; messages with many keys have so many bytes more."""
    for part in parts:
        if part == "skew":
            yield from _skew()
        elif part == "cluster":
            from bench.spark import cluster

            yield from cluster.figures()
        else:
            yield from _many_keys(part, keys, text_bytes)


def _many_keys(way: str, keys: int, text_bytes: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as place:
        folder = Path(place)
        _write_keys(folder / "in", keys, text_bytes)
        with watched() as seen:
            ran = run_local(folder, way, WAYS[way])
    named = f"{way}, {keys:,} keys" + (f" of {text_bytes:,} bytes" if text_bytes else "")
    state = sum(ran.tables) / MB
    yield Figure(f"{named}: state", state, "MB", note=f"In {len(ran.tables)} files.")
    yield from _peaks(named, seen)
    last = len(ran.batches) - 1
    for at, what in ((0, "first batch"), (FILLING_FILES - 1, "last with new keys")):
        yield Figure(f"{named}: {what}", ran.seconds[at], "s")
    yield Figure(f"{named}: {LATER_MESSAGES:,} messages later", ran.seconds[last], "s")
    cpu_s = seen.cpu_s(*ran.batches[last])
    yield Figure(f"{named}: {LATER_MESSAGES:,} messages later, CPU", cpu_s, "s")


def _skew() -> Iterator[Figure]:
    for kind, way in (("newest", SKEWED), ("reduced", REDUCED)):
        for share, load in ((0, "keys alike"), (3, "a third of one key")):
            with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as place:
                folder = Path(place)
                _write_skewed(folder / "in", share)
                with watched() as seen:
                    ran = run_local(folder, "skew", way)
            messages = SKEWED_MESSAGES // SKEWED_FILES
            # Without the first batch, which starts the Python workers.
            cpu_s = seen.cpu_s(ran.batches[1][0], ran.batches[-1][1]) / (SKEWED_FILES - 1)
            yield Figure(f"{kind}, {load}", messages / min(ran.seconds[1:]), "messages/s")
            yield Figure(f"{kind}, {load}: CPU", cpu_s / messages * 1e6, "µs/message")
            yield from _peaks(f"{kind}, {load}", seen)


def _peaks(named: str, seen: Watched) -> Iterator[Figure]:
    yield Figure(f"{named}: peak memory of a task", seen.peak_bytes["python"] / MB, "MB")
    yield Figure(f"{named}: peak memory of Java", seen.peak_bytes["java"] / MB, "MB")


def run_local(folder: Path, name: str, way: str) -> Ran:
    """Run a stream over all files of a folder on two cores of this machine."""
    spark = open_session("local[2]")
    try:
        return run(spark, folder, name, way)
    finally:
        close_session(spark)


def run(spark: SparkSession, folder: Path, name: str, way: str) -> Ran:
    """Run a stream over all files of a folder."""
    file = folder / "streams.toml"
    file.write_text(DEFINITION.format(name=name, folder=folder, way=way), encoding="utf-8")
    [definition] = read_definitions(file)
    with Checkpoint(definition) as checkpoint:
        stream = Stream(definition)
        stream.start(spark, checkpoint, available_now=True)
        assert stream.query is not None
        stream.query.awaitTermination()
        progress = [each for each in stream.query.recentProgress if each["numInputRows"]]
        last = max((definition.checkpoint / "held").glob("[0-9]*"))
        tables = [path.stat().st_size for path in last.glob("*.arrow")]
    begins = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in progress]
    took = [each["durationMs"]["triggerExecution"] / 1_000 for each in progress]
    return Ran([(at, at + s) for at, s in zip(begins, took, strict=True)], tables)


def _write_keys(folder: Path, keys: int, text_bytes: int) -> None:
    """Write files that bring all keys, and then some again."""
    folder.mkdir()
    chance = random.Random(1)
    texts = base64.b64encode(chance.randbytes(TEXTS_BYTES)).decode() if text_bytes else ""
    for number in range(FILLING_FILES):
        write_messages(folder, number, range(number, keys, FILLING_FILES), texts, text_bytes)
    for number in range(FILLING_FILES, FILLING_FILES + LATER_FILES):
        drawn = (chance.randrange(keys) for _ in range(LATER_MESSAGES))
        write_messages(folder, number, drawn, texts, text_bytes)


def _write_skewed(folder: Path, share: int) -> None:
    folder.mkdir()
    chance = random.Random(1)
    for number in range(SKEWED_FILES):
        drawn = (
            0 if share and n % share == 0 else chance.randrange(SKEWED_KEYS)
            for n in range(SKEWED_MESSAGES // SKEWED_FILES)
        )
        write_messages(folder, number, drawn)


def write_messages(
    folder: Path, number: int, keys: Iterable[int], texts: str = "", text_bytes: int = 0
) -> None:
    """Write the file of a number, with a message for each key, and a piece of `texts` in each."""
    # Far apart, so that no piece is near one that it shares a part with.
    starts = range(0, max(1, len(texts) - text_bytes), text_bytes + 1)

    def piece(n: int) -> str:
        start = starts[n % len(starts)]
        return f',"text":"{texts[start : start + text_bytes]}"' if texts else ""

    path = folder / f"{number:04}.ndjson"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(
            f'{{"k":"K{key:08}","ts":{FIRST_MS + 10_000 * number + n // 1_000},'
            f'"price":101.25,"n":{n}{piece(n)}}}\n'
            for n, key in enumerate(keys)
        )
    set_file_time(path, number)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["held"])
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--text-bytes", type=int, default=0)
    asked = parser.parse_args()
    for one in figures(asked.parts, asked.keys, asked.text_bytes):
        print(f"{one.name:60} {one.value:12,.2f} {one.unit} {one.note}".rstrip(), flush=True)
