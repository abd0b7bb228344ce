"""A view's stages as Spark runs them: on executors, with a shuffle of changes between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.columns.rows import SENT
from pipeline.views.links import Side
from pipeline.views.records import PARTS
from pipeline.views.routes import ROUTED
from pipeline.views.stages import Viewing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def viewed(left: DataFrame, right: DataFrame | None, viewing: Viewing) -> DataFrame:
    """SENT rows of a view.

    `left` and, for a join, `right` are SENT rows of the records that changed in a batch, one or
    more for each; where a record has several, the newest counts.
    """
    by_key = f"coalesce(pmod(crc32(CAST(key AS BINARY)), {viewing.shards}), 0) AS home"
    news = left.selectExpr("*", f"CAST({int(Side.LEFT)} AS LONG) AS side", by_key)
    if right is None:
        return _grouped(_sharded(news, viewing.records, PARTS, viewing.shards), viewing)
    rights = right.selectExpr("*", f"CAST({int(Side.RIGHT)} AS LONG) AS side", by_key)
    routed = _sharded(news.unionByName(rights), viewing.routes, ROUTED, viewing.shards)
    if viewing.view is None:
        return _sharded(routed, viewing.pairs, SENT, viewing.shards)
    return _grouped(_sharded(routed, viewing.pairs, PARTS, viewing.shards), viewing)


def _grouped(parts: DataFrame, viewing: Viewing) -> DataFrame:
    return _sharded(parts, viewing.groups, SENT, viewing.shards)


def _sharded(rows: DataFrame, stage: Stage, columns: str, shards: int) -> DataFrame:
    """Rows to the tasks of their `home`, of which each has a row: what is held is always read."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    marks = rows.sparkSession.range(shards).withColumnRenamed("id", "home")
    marked = rows.unionByName(marks, allowMissingColumns=True)
    return marked.repartitionById(shards, F.expr("CAST(home AS INT)")).mapInArrow(stage, columns)
