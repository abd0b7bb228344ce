"""The order of event time: messages that come late, up to a watermark, in the places of their own.

A message is taken at its effective time, once the watermark has passed it: the greatest of its
own time, the watermark when it was published, and the effective times of earlier messages of its
key. So no key ever goes back to an older message, nothing is too late to count, and where the
messages were cut into pieces cannot be seen. The watermark is the greatest time published so far
less `lateness_ns`; with none this is the recorded clock, on which a late message counts as now.
"""

from __future__ import annotations

import numpy as np

from tidegate.pipeline.columns.bodies import Bodies
from tidegate.pipeline.columns.conflator import Rows
from tidegate.pipeline.columns.intervals import Column

EARLIEST_NS = -(2**63)


class Timeline:
    """The messages of one stream that the watermark has not passed, in order of publication.

    Attributes:
        greatest_ns: the greatest time published so far.
        passed_ns: the watermark, which never runs back.
        waiting: one row a message, `times_ns` being effective.
    """

    def __init__(self, lateness_ns: int, bodies: Bodies) -> None:
        self.greatest_ns = EARLIEST_NS
        self.passed_ns = EARLIEST_NS
        self.waiting = Rows.none(bodies)
        self._bodies = bodies
        self._lateness_ns = lateness_ns

    def add(self, rows: Rows, greatest_ns: Column, clock_ns: int) -> Rows:
        """The next messages; what can be taken now, in order.

        Args:
            rows: one a message, in order of publication, with times of their own; EARLIEST_NS for
                what has none (removals), which count at the greatest time before them.
            greatest_ns: of each, the greatest time of the piece up to it, other streams' too.
            clock_ns: the greatest time of the piece.
        """
        reached = np.maximum(greatest_ns, self.greatest_ns)
        own = np.where(rows.times_ns == EARLIEST_NS, reached, rows.times_ns)
        marks = np.maximum(self._marks(reached), self.passed_ns)
        rows.times_ns = np.maximum(own, marks)
        self.greatest_ns = max(self.greatest_ns, clock_ns)
        mark = int(self._marks(np.array([self.greatest_ns], np.int64))[0])
        self.passed_ns = max(self.passed_ns, mark)
        return self._take(self.waiting.then(rows, self._bodies))

    def finish(self) -> Rows:
        """All that has waited; what comes later counts as no earlier."""
        self.passed_ns = self.greatest_ns
        return self._take(self.waiting)

    def _marks(self, reached_ns: Column) -> Column:
        """The watermark at greatest times, without running over."""
        marks: Column = np.maximum(reached_ns, EARLIEST_NS + self._lateness_ns) - self._lateness_ns
        return marks

    def _take(self, pool: Rows) -> Rows:
        if self._lateness_ns and len(pool.codes):
            pool.times_ns = _not_back(pool.codes, pool.times_ns)
        ready = pool.times_ns <= self.passed_ns
        taken = np.flatnonzero(ready)
        taken = taken[np.argsort(pool.times_ns[taken], kind="stable")]
        self.waiting = pool.take(np.flatnonzero(~ready), self._bodies)
        return pool.take(taken, self._bodies)


def _not_back(codes: Column, times_ns: Column) -> Column:
    """Each time, or a later one that its key had before."""
    distinct, ranks = np.unique(times_ns, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    steps = codes[order] * len(distinct) + ranks[order]
    raised = np.empty_like(times_ns)
    raised[order] = distinct[np.maximum.accumulate(steps) % len(distinct)]
    return raised
