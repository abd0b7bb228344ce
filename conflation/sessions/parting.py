"""What was queued for a subscription that has ended: it goes before the end is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from conflation.boards.board import Board
from conflation.definition import QueuePolicy
from conflation.lane_id import LaneId
from conflation.outputs import Rows
from conflation.sessions.owed import Owed
from conflation.topics.topic import Topic


@dataclass(slots=True, eq=False)
class Parting:
    """Rows that are still to come, counted in their topic's sums as they go."""

    name: str
    topic: Topic
    board: Board
    rules: LaneId
    owed: Owed
    sums: Counter[str]

    def take(self, bytes_max: int) -> Rows:
        """The next piece."""
        batch, delivered = self.owed.take(bytes_max)
        self._move(delivered, "delivered")
        return Rows(self.name, self.topic.name, self.topic.epoch, "publish", batch)

    def queued(self) -> tuple[int, int]:
        """Messages and bytes that count towards the session's limits."""
        return self.owed.queued()

    def relieve(self) -> None:
        """By the topic's policy, now that the queue is full."""
        policy = self.topic.definition.policy
        if policy is QueuePolicy.UNSUBSCRIBE:
            self.drop("BACK_PRESSURE")
        elif policy is not QueuePolicy.OFF:
            before = self.owed.waiting()
            self.owed.conflate(self.rules, self.board)
            self._move(before - self.owed.waiting(), "conflated")

    def drop(self, reason: str) -> None:
        """Nobody will take it."""
        waiting = self.owed.waiting()
        self.owed.rows, self.owed.sent = (), 0
        self._move(waiting, "dropped")
        self.sums[f"dropped {reason}"] += waiting

    def _move(self, rows: int, to: str) -> None:
        self.sums["waiting"] -= rows
        self.sums[to] += rows
