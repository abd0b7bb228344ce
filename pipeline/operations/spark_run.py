"""A query of Spark, and the stream that it runs, as the supervisor sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipeline.errors import PipelineError, from_spark
from tidegate.pipeline.operations.status import (
    Pace,
    Totals,
    finds_nothing,
    is_initializing,
    pace_of,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class SparkRun:
    """The run of a stream that is a query (a `StreamRun`).

    `name` is the stream's; `newest` is the number of messages of its newest batch.
    """

    name: str
    query: StreamingQuery
    newest: int = 0

    @classmethod
    def of(cls, name: str, query: StreamingQuery | None, newest: int) -> SparkRun | None:
        """Return the run of a query; None before the first start."""
        return None if query is None else cls(name, query, newest)

    @property
    def is_active(self) -> bool:
        """True until the query has ended or failed."""
        return self.query.isActive

    @property
    def is_starting(self) -> bool:
        """True while Spark plans the query."""
        return is_initializing(self.query.status)

    @property
    def finds_nothing(self) -> bool:
        """True if there was nothing to read at the newest trigger."""
        return finds_nothing(self.query.status)

    @property
    def failure(self) -> PipelineError | None:
        """Why the query has ended, if it has failed."""
        raised = self.query.exception()
        return None if raised is None else from_spark(self.name, str(raised))

    def pace(self, before: Pace) -> Pace:
        """Return the pace of the newest batch; `before` if there was none since."""
        # Spark reports only its newest trigger, which may have been no batch.
        return pace_of(self.query.lastProgress, before, self.newest)


class QueryStream:
    """A stream that runs as queries of Spark (a `SupervisedStream`); a subclass starts them.

    Attributes:
        name: the stream's name.
        query: that of the newest start.
        totals: counts since the first start; replaced by the thread of the query, read by others.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.query: StreamingQuery | None = None
        self.totals = Totals()
        self._begun_s: float | None = None

    @property
    def run(self) -> SparkRun | None:
        """The run since the newest start."""
        return SparkRun.of(self.name, self.query, self.totals.newest)

    @property
    def working_s(self) -> float | None:
        """For how many seconds a batch has been worked on; None between two of them."""
        begun_s = self._begun_s
        return None if begun_s is None else time.monotonic() - begun_s

    @contextmanager
    def _timed_batch(self) -> Iterator[float]:
        """Yield the time at which a batch begins; turn an error of py4j into one of the stream.

        Raises:
            PipelineError: the stream's own sentence, or Spark's.
        """
        from py4j.protocol import Py4JError

        self._begun_s = begun_s = time.monotonic()
        try:
            yield begun_s
        except Py4JError as error:
            # In one sentence: Spark searches the text of a py4j error by a regular expression that
            # recurses for each character, and a long text would kill the query's thread silently.
            raise from_spark(self.name, str(error)) from None
        finally:
            self._begun_s = None


@contextmanager
def spark_errors(name: str) -> Iterator[None]:
    """Turn what Spark raises in the block into an error of the stream `name`.

    Raises:
        PipelineError: the stream's own sentence, or Spark's.
    """
    # Here, so that the command line is quick where no stream is run.
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise from_spark(name, str(error)) from error
