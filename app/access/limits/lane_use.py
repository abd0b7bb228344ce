"""The lanes that subscriptions were granted, and how many of them one message may reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from tidegate.conflation.errors import LimitReached
from tidegate.conflation.subscription import LaneId
from tidegate.keys.path import FieldPath

Wanted = tuple[str, LaneId]
"""A topic, and a lane in it."""


class _TopicLanes:
    """The lanes of one topic, by how a message finds them.

    Every message reaches a lane whose filter must be tried. A filter that requires a field to equal
    a constant is found by that constant, for which the field is read in every message.
    """

    __slots__ = ("by_path", "tried")

    def __init__(self) -> None:
        self.tried = 0
        self.by_path: dict[FieldPath, Counter[str]] = {}

    def reached(self, lane_id: LaneId) -> int:
        """Return how many other lanes and fields a message for this lane is checked for."""
        equality = None if lane_id.feed.filter is None else lane_id.feed.filter.equality()
        reached = self.tried + len(self.by_path)
        if equality is None or equality.path not in self.by_path:
            return reached
        found = self.by_path[equality.path]
        return reached + max((found[token] for token in equality.tokens), default=0)

    def add(self, lane_id: LaneId, more: int) -> None:
        """Count one lane more, or one less with -1."""
        equality = None if lane_id.feed.filter is None else lane_id.feed.filter.equality()
        if equality is None:
            self.tried += more
            return
        found = self.by_path.setdefault(equality.path, Counter())
        for token in equality.tokens:
            found[token] += more
            if not found[token]:
                del found[token]
        if not found:
            del self.by_path[equality.path]

    @property
    def is_empty(self) -> bool:
        """True if no lane is left."""
        return not self.tried and not self.by_path


def _frees_none(topic: str | None, sub: str | None) -> bool:
    return False


class LaneUse:
    """The different lanes of all subscriptions, each counted once however many share it."""

    def __init__(self, lanes_max: int, topic_lanes_max: int) -> None:
        """`topic_lanes_max`: lanes of a topic that one message may reach."""
        self.make_room: Callable[[str | None, str | None], bool] = _frees_none
        """Frees an idle lane of a topic and a subject (None: any); returns False if none is."""
        self.subscriptions = 0
        self._lanes_max, self._topic_lanes_max = lanes_max, topic_lanes_max
        self._held: dict[Wanted, int] = {}
        self._topics: dict[str, _TopicLanes] = {}

    def check(self, wanted: Collection[Wanted]) -> None:
        """Make room for new lanes, or refuse them.

        Raises:
            LimitReached: of a topic or of the gateway.
        """
        while self._new_beyond(wanted) > 0 and self.make_room(None, None):
            pass
        if self._new_beyond(wanted) > 0:
            raise LimitReached(f"there are at most {self._lanes_max} different lanes (lanes_max)")
        for topic, lane_id in wanted:
            while self._is_crowded(topic, lane_id) and self.make_room(topic, None):
                pass
            if self._is_crowded(topic, lane_id):
                most = f"{self._topic_lanes_max} different lanes (topic_lanes_max)"
                raise LimitReached(f"a message of a topic reaches at most {most}")

    def _new_beyond(self, wanted: Collection[Wanted]) -> int:
        new = {each for each in wanted if each not in self._held}
        return len(self._held) + len(new) - self._lanes_max if new else 0

    def _is_crowded(self, topic: str, lane_id: LaneId) -> bool:
        lanes = self._topics.get(topic)
        is_new = (topic, lane_id) not in self._held
        return is_new and lanes is not None and lanes.reached(lane_id) >= self._topic_lanes_max

    def hold(self, topic: str, lane_id: LaneId) -> None:
        """Count a subscription in a lane."""
        self.subscriptions += 1
        held = self._held.get((topic, lane_id), 0)
        self._held[topic, lane_id] = held + 1
        if not held:
            self._topics.setdefault(topic, _TopicLanes()).add(lane_id, 1)

    def release(self, topic: str, lane_id: LaneId) -> None:
        """Count one subscription less in a lane."""
        self.subscriptions -= 1
        self._held[topic, lane_id] -= 1
        if not self._held[topic, lane_id]:
            del self._held[topic, lane_id]
            lanes = self._topics[topic]
            lanes.add(lane_id, -1)
            if lanes.is_empty:
                del self._topics[topic]
