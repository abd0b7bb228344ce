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
    """A new feed, filled from records in steps that each cost a bounded number of them.

    What is published meanwhile waits in its order, and is put on the board behind the records; so
    a build that is done stands where its topic does. Only then the feed has lanes, and is found.

    Or a feed that `is_there`, whose deferred rows are made in steps: it gets messages by itself.
    """

    def __init__(self, feed: Feed, frames: Iterable[Frame], *, is_there: bool = False) -> None:
        """`frames`: those of the topic's board, tombstones included."""
        self.feed = feed
        self.is_there = is_there
        self._records = iter(frames)
        self._missed: deque[Frame] = deque()
        self._since: list[Frame] = []

    def miss(self, frames: Sequence[Frame]) -> None:
        """Note messages of the topic."""
        if not self.is_there:
            self._missed.extend(frames)
        self.follow(frames)

    def follow(self, frames: Sequence[Frame]) -> None:
        """Note messages that the finished feed gets by itself, for those who begin after them."""
        self._since += frames

    def since(self, offset: int) -> Sequence[Frame]:
        """Return the messages of the topic after an offset that is not before the beginning."""
        return self._since[bisect_right(self._since, offset, key=attrgetter("offset")) :]

    def steps(self) -> Steps[None]:
        """Do the work; it is done for as long as nothing is published after the last step."""
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
