"""A query of Spark as its supervisor sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipeline.errors import PipelineError, from_spark
from tidegate.pipeline.operations.status import Pace, finds_nothing, is_initializing, pace_of

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
