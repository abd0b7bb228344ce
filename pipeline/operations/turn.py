"""Whose turn it is to start: one stream at a time.

Spark gives the Python that plans a stream ten seconds to come up, and no setting changes that: many
that start at one moment keep one another from it, and would at each new start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.operations.condition import is_initializing

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TURN_SECONDS_MAX = 25.0  # a stream may have two such Pythons, one after the other


class Turn:
    """Taken with a start, free once that query reads, has ended, or took longer than Spark waits.

    Args:
        monotonic: seconds; for tests.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._starting: StreamingQuery | None = None
        self._until_s = 0.0

    def take(self, query: StreamingQuery | None) -> None:
        """This one was started."""
        self._starting, self._until_s = query, self._monotonic() + TURN_SECONDS_MAX

    def is_free(self) -> bool:
        """Whether another may be started."""
        query = self._starting
        if query is None or self._monotonic() >= self._until_s:
            return True
        return not (query.isActive and is_initializing(query.status))
