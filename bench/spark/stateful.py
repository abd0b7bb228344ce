"""Conflation by Spark's own means: a value state and a timer for each key.

`LatestOfKey` reads and writes the state with each message, `LatestOfKeyWithCare` once for each key
of a batch. The state is in RocksDB, because Spark's other store refuses `transformWithState`; a
batch writes changes, no snapshots.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench.spark.ticks import write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERVAL_MS = 1_000
LINES_PER_BATCH = 100_000
WARMING_BATCHES = 1
BATCHES = 5
OUTPUT = "key string, opened_ms long, messages long, value string"
STATE = "opened_ms long, messages long, value string"
FIELDS = "tickerId string, exchange string, type string, ts long"

_EXECUTION = "org.apache.spark.sql.execution.streaming"
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": f"{_EXECUTION}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The session's own file system suits checkpoints without state; RocksDB needs Hadoop's.
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_EXECUTION}.checkpointing.FileContextBasedCheckpointFileManager"
    ),
}


class Held(NamedTuple):
    """The state of a key."""

    opened_ms: int
    messages: int
    value: str


class LatestOfKey(StatefulProcessor):
    """Sends the newest message of a key, an interval after the first held one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._held = handle.getValueState("held", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        for row in sorted(rows, key=attrgetter("ts")):
            found = self._held.get()
            held = None if found is None else Held(*found)
            if held is not None and row.ts >= held.opened_ms + INTERVAL_MS:
                self._handle.deleteTimer(held.opened_ms + INTERVAL_MS)
                yield Row(key=key[0], **held._asdict())
                held = None
            if held is None:
                held = Held(row.ts, 0, "")
                self._handle.registerTimer(row.ts + INTERVAL_MS)
            self._held.update(Held(held.opened_ms, held.messages + 1, row.value))

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        found = self._held.get()
        assert found is not None
        self._held.clear()
        yield Row(key=key[0], **Held(*found)._asdict())

    def close(self) -> None:
        pass


class LatestOfKeyWithCare(LatestOfKey):
    """Does the same, but combines the messages of a key and batch before it reads the state."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        found = self._held.get()
        before = held = None if found is None else Held(*found)
        for row in sorted(rows, key=attrgetter("ts")):
            if held is not None and row.ts >= held.opened_ms + INTERVAL_MS:
                yield Row(key=key[0], **held._asdict())
                held = None
            opened_ms, messages = (row.ts, 0) if held is None else held[:2]
            held = Held(opened_ms, messages + 1, row.value)
        assert held is not None
        self._held.update(held)
        if before is None or before.opened_ms != held.opened_ms:
            if before is not None:
                self._handle.deleteTimer(before.opened_ms + INTERVAL_MS)
            self._handle.registerTimer(held.opened_ms + INTERVAL_MS)


def stateful_rate(
    spark: SparkSession, lines: Iterable[bytes], processor: type[LatestOfKey]
) -> float:
    """Return messages a second of the batches after the warm-up, from planning to log."""
    taken = list(islice(lines, (WARMING_BATCHES + BATCHES) * LINES_PER_BATCH))
    for name, setting in STATE_STORE.items():
        spark.conf.set(name, setting)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        write_files(Path(folder, "in"), taken, LINES_PER_BATCH)
        query = _started(spark, folder, processor)
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    counted = progress[WARMING_BATCHES:]
    rows = sum(int(each["numInputRows"]) for each in counted)
    took_ms = sum(int(each["durationMs"]["triggerExecution"]) for each in counted)
    return rows / took_ms * 1_000


def _started(spark: SparkSession, folder: str, processor: type[LatestOfKey]) -> StreamingQuery:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    return (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .load(f"{folder}/in")
        .select("value", F.from_json("value", FIELDS).alias("tick"))
        .selectExpr(
            "concat_ws(',', tick.tickerId, tick.exchange, tick.type) AS key",
            "timestamp_millis(tick.ts) AS time",
            "tick.ts AS ts",
            "value",
        )
        .withWatermark("time", "0 seconds")
        .groupBy("key")
        .transformWithState(processor(), OUTPUT, "Append", "EventTime")
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
