"""When a stream's batches go out: an interval apart, with what was published until just before.

A batch that is written early has to wait for the end of its interval, and what it holds grows old
meanwhile. So the slack is taken before it reads: the batch before stays open for as long as the
next one is not expected to need.
"""

from __future__ import annotations

from collections import deque

WORK_KEPT = 5
MARGIN_S = 0.1
INTERVAL_S_MAX = 10.0
"""Above it nothing is held open: who is killed meanwhile would do so much again."""


class Pacing:
    """The rhythm of one stream; moments are monotonic seconds.

    Args:
        interval_s: between two commits; 0 for a stream that is not paced.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._sent_at_s = 0.0
        self._work_s: deque[float] = deque(maxlen=WORK_KEPT)

    @property
    def holds(self) -> bool:
        """Whether batches stay open; then the next may be begun at any time."""
        return 0 < self._interval_s <= INTERVAL_S_MAX

    @property
    def not_before_s(self) -> float:
        """When the interval since the last commit is over; 0 if nothing was sent."""
        return self._sent_at_s + self._interval_s if self._sent_at_s else 0.0

    def worked(self, work_s: float, sent_at_s: float) -> None:
        """Note a batch: how long it took without waiting, and when it was sent, 0 if it was not."""
        self._work_s.append(work_s)
        self._sent_at_s = sent_at_s or self._sent_at_s

    def slack_s(self, now_s: float) -> float:
        """How long the batch that was just sent is to stay open."""
        if not self.holds or not self._sent_at_s:
            return 0.0
        return max(0.0, self.not_before_s - max(self._work_s) - MARGIN_S - now_s)
