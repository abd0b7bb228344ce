"""Stages of a view keep a table for each shard, and pass on refused lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.pipeline.views.tasks import Kept, Message, SentRow, Stage, Tasks, view
from tests.support.rules import rule
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.streams.views import HeldTables
from tidegate.pipeline.views.groups import PARTIALS, View
from tidegate.pipeline.views.joins import ROUTED, Join, Side
from tidegate.pipeline.views.stages import CHANGED, ViewBatch, view_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


JOIN = Join(((FieldPath.parse("/s"), FieldPath.parse("/s")),), FieldPath.parse("/q"))
REFUSED = {"file": "f", "block": 0, "position": 3, "value": b"{", "messages": 1, "refused": "odd"}


def rows(columns: str, *found: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(found), schema=arrow_schema(columns))


@pytest.mark.parametrize(
    ("name", "columns"),
    [("records", CHANGED), ("groups", PARTIALS), ("routes", CHANGED), ("pairs", ROUTED)],
)
def test_what_was_refused_goes_along_and_each_shard_keeps_its_table(
    name: str, columns: str
) -> None:
    kept = Kept()
    view_batch = ViewBatch(view("[SUM(/v) AS /v]"), JOIN, 0, 2, kept)
    stage: Stage = getattr(view_batch, name)
    batch = rows(columns, {"home": 1}, {**REFUSED, "home": 0}, {"home": 0})
    found = [row for each in stage(iter([batch])) for row in each.to_pylist()]
    assert [{name: row[name] for name in REFUSED} for row in found] == [REFUSED]
    stages = {"routes": {"lefts", "rights"}, "pairs": {"pairs", "records"}}.get(name, {name})
    assert set(kept.written) == {(stage, shard) for stage in stages for shard in (0, 1)}


SHARDS = 3
FRAMES_JOIN = Join(((FieldPath.parse("/g"), FieldPath.parse("/g")),), FieldPath.parse("/q"))


def put(name: str, group: str, value: float, side: Side = Side.LEFT) -> Message:
    body = f'{{"k":"{name}","g":"{group}","v":{value}}}'
    return Message(f'["{name}"]', body.encode(), side)


HISTORY = [
    [put("a", "X", 1), put("b", "Y", 2.5), put("c", "X", 3), put("X", "X", 7, Side.RIGHT)],
    [put("b", "X", 4), put("c", "X", 3.25), put("Y", "Y", 8, Side.RIGHT)],
    [],
    [Message('["a"]', None), put("c", "Z", 9), Message('["X"]', None, Side.RIGHT)],
]  # fmt: skip


def changed(spark: SparkSession, messages: list[Message], side: Side, begin: int) -> DataFrame:
    """A row for each message of a side, in as many partitions as Spark likes."""
    rows = [
        {"key": message.key, "file": "", "block": 0, "position": position, "messages": 1}
        | {"value": message.body, "removed": None if message.body else "deleted"}
        for position, message in enumerate(messages, begin)
        if message.side is side
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow_schema(SENT)))


@pytest.mark.nightly
@pytest.mark.spark
@rule("view-9", "view-11", "view-12", "view-13")
@pytest.mark.parametrize(
    ("grouped", "join"),
    [
        (view("[SUM(/v) AS /v,LAST(/k) AS /k]"), None),
        (None, FRAMES_JOIN),
        (view("[SUM(/v * /q/v) AS /v,COUNT(/q/v) AS /n]"), FRAMES_JOIN),
    ],
)
def test_spark_makes_the_rows_that_tasks_make(
    spark: SparkSession, tmp_path: Path, grouped: View | None, join: Join | None
) -> None:
    tasks, begin = Tasks(grouped, SHARDS, join), 1
    for number, messages in enumerate(HISTORY):
        mine = [message for message in messages if join or message.side is Side.LEFT]
        tables = HeldTables(tmp_path, Batch(number, 1, "q"), SHARDS)
        view_batch = ViewBatch(grouped, join, number, SHARDS, tables)
        left, right = (changed(spark, mine, side, begin) for side in Side)
        rows = view_rows(left, right if join else None, view_batch).collect()
        found = {
            row.key: SentRow(row.value and bytes(row.value), row.removed, row.messages)
            for row in rows
        }
        assert found == tasks.batch(mine)
        assert len(found) == len(rows)
        begin += len(messages)
