"""The interface of sinks: each batch is written once, even if Spark repeats it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegate.pipeline.operations.status import BatchCount

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
        """The number of its first row; that of an end is above all rows of its batch.

        So it does not depend on how many there are, or on whether their file still exists.
        """
        return 1 + (END_ROWS if self.is_end else 0)


@dataclass(frozen=True, slots=True)
class BatchResult(BatchCount):
    """The result of a micro-batch.

    `ready_at_s` is the monotonic time at which only the commit was left; `sent_at_s` that of the
    commit's answer, 0 if there was nothing to commit; `waited_s` how long it waited to be due.
    """

    ready_at_s: float = 0.0
    sent_at_s: float = 0.0
    waited_s: float = 0.0


def wait_until(moment_s: float) -> float:
    """Return at a moment (monotonic seconds), at once if it is over: how long it took."""
    pause_s = max(0.0, moment_s - time.monotonic())
    time.sleep(pause_s)
    return pause_s


class Sink(Protocol):
    """Where a stream's rows go."""

    def prepare(self) -> Sequence[str]:
        """Create it if missing; return its epoch, if it has one, and those that it continues.

        Raises:
            PipelineError: it exists and does not fit the stream.
        """

    def write(self, rows: DataFrame, batch: Batch) -> BatchResult:
        """Write rows (`columns.rows.SENT`) in order of due time and publication, in one step.

        A batch that any attempt, driver or run has written before is not written again. No row
        passes through the driver.

        Raises:
            PipelineError: the sink refuses it.
        """
