"""A drain: the queue of an ended subscription, which is still sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tidegate.conflation.boards.board import Board
from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.outputs import BACK_PRESSURE, Rows
from tidegate.conflation.sessions.rows import RowCursor, deliveries
from tidegate.conflation.subscription import LaneId
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant


@dataclass(slots=True, eq=False)
class Drain:
    """The queue of an ended subscription, which is sent before its `unsubscribed`.

    `rules` is the id of its lane. Rows are counted in the topic's `sums` as they are sent, because
    the subscriber that would count them no longer exists.
    """

    name: str
    topic: Topic
    board: Board
    rules: LaneId
    rows: RowCursor
    sums: Counter[str]

    def take(self, bytes_max: int, now: Instant) -> Rows:
        """Return the next piece."""
        batch = self.rows.take(bytes_max, now)
        self._move(deliveries(batch.frames), "delivered")
        return Rows(self.name, self.topic.name, self.topic.epoch, "publish", batch)

    def apply_policy(self) -> None:
        """Apply the topic's queue policy: the session's queue is full."""
        policy = self.topic.definition.policy
        if policy is QueuePolicy.UNSUBSCRIBE:
            self.drop(BACK_PRESSURE)
        elif policy is not QueuePolicy.OFF:
            before = self.rows.waiting()
            self.rows.conflate(self.rules, self.board)
            self._move(before - self.rows.waiting(), "conflated")

    def drop(self, reason: str) -> None:
        """Drop what is left, and count it as dropped for a reason."""
        waiting = self.rows.waiting()
        self.rows.refill(())
        self._move(waiting, "dropped")
        self.sums[f"dropped {reason}"] += waiting

    def _move(self, rows: int, to: str) -> None:
        self.sums["waiting"] -= rows
        self.sums[to] += rows
