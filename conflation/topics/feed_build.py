"""The build of a feed in steps, and what is published meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter

from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import Steps, items_at_once
from tidegate.conflation.topics.feed import Feed


class FeedBuild:
    """A new feed, filled from records in steps, each with a bounded number of them.

    Messages that are published meanwhile are put on the board after the records, so a finished
    build is up to date with its topic. Only then the topic has the feed, and the feed lanes.

    Or a feed that `is_there`, whose deferred rows are made in steps: it gets messages by itself.
    """

    def __init__(self, feed: Feed, frames: Iterable[Frame], *, is_there: bool = False) -> None:
        """`frames`: those of the topic's board, tombstones included."""
        self.feed = feed
        self.is_there = is_there
        self._records = iter(frames)
        self._missed: deque[Frame] = deque()
        self._since: list[Frame] = []

    def add(self, frames: Sequence[Frame]) -> None:
        """Add messages of the topic, which are put on the board after the records."""
        if not self.is_there:
            self._missed.extend(frames)
        self.record(frames)

    def record(self, frames: Sequence[Frame]) -> None:
        """Record messages for `since`; the finished feed gets them from its topic."""
        self._since += frames

    def since(self, offset: int) -> Sequence[Frame]:
        """Return the topic's messages after an offset; the build must have begun before it."""
        return self._since[bisect_right(self._since, offset, key=attrgetter("offset")) :]

    def steps(self) -> Steps[None]:
        """Run the build; it ends with the first step after which no message is left to add."""
        feed = self.feed
        frames_max = items_at_once(feed.id.record_cost)
        if not self.is_there:
            while part := list(islice(self._records, frames_max)):
                feed.seed_part(frame for frame in part if not frame.removed)
                yield
            feed.finish_seed()
        while self._missed or not feed.is_materialized:
            if not feed.is_materialized:
                feed.materialize_some(frames_max)
            else:
                # Their deferred rows are made in another step: each may be of a different group.
                count = min(frames_max, len(self._missed))
                # A board that has missed messages has no lanes yet, so no deadline.
                feed.publish([self._missed.popleft() for _ in range(count)], now=0)
            yield
