"""The tasks of a sink, and their reports: only counts and names reach the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipeline.columns.rows import arrow_schema
from tidegate.pipeline.sinks.sink import BatchResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


REPORT = "messages long, written long, refused long, names array<string>"
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one task: messages read, rows written, lines refused.

    `names` are those of what it has written, in order: stages, or a file.
    """

    messages: int
    written: int
    refused: int
    names: list[str]

    def rows(self) -> pa.RecordBatch:
        """Return the report as the one row that the task gives."""
        return pa.RecordBatch.from_pylist([asdict(self)], schema=arrow_schema(REPORT))


def reports_of(rows: DataFrame, task: Task) -> list[Report]:
    """Run a task on the executors, over rows in order of due time and publication."""
    in_order = rows.sortWithinPartitions("due_ns", "file", "block", "position")
    # `collect` is the action: Spark gives the results of one attempt of each task, in order.
    return [Report(*row) for row in in_order.mapInArrow(task, REPORT).collect()]


def result_of(reports: Sequence[Report], *, is_new: bool, sent_at_s: float) -> BatchResult:
    """Return what tasks have done together; `is_new` unless an earlier try had done it."""
    written = sum(report.written for report in reports)
    return BatchResult(
        messages=sum(report.messages for report in reports),
        published=written if is_new else 0,
        repeated=0 if is_new else written,
        refused=sum(report.refused for report in reports),
        sent_at_s=sent_at_s,
    )


def task_attempt() -> int:
    """Return Spark's unique number of this attempt of a task; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.taskAttemptId() if context else 0
