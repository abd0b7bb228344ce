"""Spark goes through a view's stages as tasks do that have nothing to do with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.pipeline.views.tasks import Message, Tasks, Told, view
from tests.support.rules import rule
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.streams.views import HeldTables
from tidegate.pipeline.views.links import Join, Side
from tidegate.pipeline.views.records import View
from tidegate.pipeline.views.stages import Viewing, viewed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHARDS = 3
JOIN = Join(((FieldPath.parse("/g"), FieldPath.parse("/g")),), FieldPath.parse("/q"))


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


@rule("view-9", "view-11", "view-12", "view-13")
@pytest.mark.parametrize(
    ("grouped", "join"),
    [
        (view("[SUM(/v) AS /v,LAST(/k) AS /k]"), None),
        (None, JOIN),
        (view("[SUM(/v * /q/v) AS /v,COUNT(/q/v) AS /n]"), JOIN),
    ],
)
def test_spark_makes_the_rows_that_tasks_make(
    spark: SparkSession, tmp_path: Path, grouped: View | None, join: Join | None
) -> None:
    tasks, begin = Tasks(grouped, SHARDS, join), 1
    for number, messages in enumerate(HISTORY):
        told = [message for message in messages if join or message.side is Side.LEFT]
        tables = HeldTables(tmp_path, Batch(number, 1, "q"), SHARDS)
        viewing = Viewing(grouped, join, number, SHARDS, tables)
        left, right = (changed(spark, told, side, begin) for side in Side)
        rows = viewed(left, right if join else None, viewing).collect()
        found = {
            row.key: Told(row.value and bytes(row.value), row.removed, row.messages) for row in rows
        }
        assert found == tasks.batch(told)
        assert len(found) == len(rows)
        begin += len(messages)
