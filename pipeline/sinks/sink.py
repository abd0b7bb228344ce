"""The interface of sinks: each batch is written once, whatever is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.rows import arrow_schema, file_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


END = "_end"
"""Sorts after the name of its batch with any ending; "-" would sort before "."."""
END_ROWS = 1_000_000_000_000  # more rows than a batch can have


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a stream.

    Attributes:
        number: Spark's.
        run: rises with each start of the stream.
        query: the id in the checkpoint; a new checkpoint has another one.
        not_before_s: nothing of the batch may be seen before (monotonic).
        is_end: a batch of its own for the rows still held at the end of recorded input. It follows
            the batch of the same number.
        is_first: the first batch of this start that no earlier start can have planned.
    """

    number: int
    run: int
    query: str
    not_before_s: float = 0.0
    is_end: bool = False
    is_first: bool = False

    @property
    def label(self) -> str:
        """Its number as names have it: whatever ending they have, they sort in order."""
        return f"{self.number:09d}{END if self.is_end else ''}"

    @property
    def first_row(self) -> int:
        """The number of its first row: an end goes on where no row of its batch can be.

        However many there are, and also where their file has been taken away.
        """
        return 1 + (END_ROWS if self.is_end else 0)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a micro-batch.

    `messages` its rows stand for; `published` rows it wrote; `repeated` rows that an earlier try
    had written; `refused` lines that went to the dead letters; `ready_at_s` monotonic time at which
    only the commit was left; `sent_at_s` that of the commit's answer, 0 if there was nothing to
    commit; `waited_s` how long it waited to be due.
    """

    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    ready_at_s: float = 0.0
    sent_at_s: float = 0.0
    waited_s: float = 0.0


# --- what tasks report: only counts and names come to the driver

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


def wait_until(moment_s: float) -> float:
    """Return at a moment (monotonic seconds), at once if it is over: how long it took."""
    pause_s = max(0.0, moment_s - time.monotonic())
    time.sleep(pause_s)
    return pause_s


class Sink(Protocol):
    """Where a stream's rows go."""

    def prepare(self) -> Sequence[str]:
        """Make it if it is not there; return its epoch and those that it continues, if it has one.

        Raises:
            PipelineError: it is there, and not what the stream asks for.
        """

    def write(self, rows: DataFrame, batch: Batch) -> BatchResult:
        """Write rows (`columns.rows.SENT`) in order of due time and publication, in one step.

        A batch that was written before, by whichever attempt, driver or run, is written no more.
        No row passes through the driver.

        Raises:
            PipelineError: the sink does not take it.
        """


# --- dead letters: lines that a stream read and refused, as NDJSON, one file a batch
#
# A letter is `{"reason", "file", "row", "line"}`; `row` counts the lines of the file's block. The
# file is named by its batch, so a batch that comes again writes the same one.


_COLUMNS = ["refused", "file", "position", "value"]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A folder that all nodes share."""

    folder: str

    def path(self, batch: Batch) -> Path:
        """Return the file of a batch."""
        return Path(self.folder) / f"batch-{batch.label}.ndjson"


@dataclass(slots=True)
class DeadLetterFile:
    """The refused lines of one batch, written by one attempt of a task: all of them, or none."""

    to: DeadLetters
    batch: Batch
    attempt: int
    count: int = 0
    _file: BinaryIO | None = field(default=None, repr=False)

    def take(self, rows: pa.RecordBatch) -> None:
        """Write down those of some rows that were refused."""
        columns = rows.select(_COLUMNS).filter(pc.is_valid(rows.column("refused")))
        for refused, file, position, value in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            self._open().write(_letter(refused, file, position, value))
            self.count += 1

    def end(self) -> None:
        """Give the file its name."""
        # If a task has two attempts the later one wins; their lines are the same.
        if self._file is not None:
            self._file.close()
            self._unfinished().replace(self.to.path(self.batch))
            self._file = None

    def _open(self) -> BinaryIO:
        if self._file is None:
            Path(self.to.folder).mkdir(parents=True, exist_ok=True)
            self._file = self._unfinished().open("wb")
        return self._file

    def _unfinished(self) -> Path:
        suffix = f".{self.batch.run}.{self.attempt}.unfinished"
        return self.to.path(self.batch).with_suffix(suffix)


def attempt() -> int:
    """Return the number of this attempt of a task, which no other has; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.taskAttemptId() if context else 0


def _letter(refused: str, file: str | None, position: int, value: bytes) -> bytes:
    letter: dict[str, Any] = {
        "reason": refused,
        "file": file_name(file or "") or None,
        "row": position,
        # A line may be refused for being no UTF-8, and its letter is JSON.
        "line": value.decode("utf-8", "backslashreplace"),
    }
    return msgspec.json.encode(letter) + b"\n"
