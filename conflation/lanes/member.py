"""A member: one subscription in its lane. A position instead of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from conflation.count import Count
from conflation.frame import Frame, Row
from conflation.lanes.backlog import Backlog
from conflation.lanes.round import Round
from conflation.subscription import Subscription


@dataclass(slots=True, eq=False)
class Member:
    """Where one subscriber stands.

    `position` counts as its lane counts: everything up to it has been taken. `cut` is the
    offset of the join: nothing at or below it comes from the lane. `joined` is the feed's count
    of accepted messages at the join, `passed` of those it passed over; `delivered` counts live
    rows; `joins` is the lane's count of joins. `conflated_to`: a backlog of every message was
    given up to this offset.
    What was given up stands in `owed`: what the next row of each key counts beyond itself; where
    its board cannot answer for it, the rows themselves stand in `backlog`.
    `released`: what was let go to it alone, up to this offset, when it came from another lane.
    `round`: where it was behind an interval, what it is told until it is asked for again.
    `sent` and `based`: the keys that it was sent, and those of which it holds the value that a
    delta is against. None stands for all, and where it does not matter: with a snapshot it has
    everything; without, the removal of a key never sent makes no sense.
    """

    name: str
    session: str
    subscription: Subscription
    position: int = 0
    cut: int = 0
    joined: int = 0
    passed: int = 0
    joins: int = 0
    delivered: int = 0
    conflated_to: int = 0
    released: int = 0
    round: Round | None = None
    owed: dict[str, Count] = field(default_factory=dict)
    backlog: Backlog | None = None
    sent: set[str] | None = None
    based: set[str] | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells members apart: session, subscription, topic."""
        return self.session, self.name, self.subscription.topic

    def remember(self) -> None:
        """Keep from now on what decides what it may be told."""
        subscription, lane_id = self.subscription, self.subscription.lane_id
        if subscription.command.queries:
            return
        if lane_id.oof and self.sent is None and subscription.resume is None:
            self.sent = set()
        if lane_id.delta and self.based is None:
            self.based = set()

    def looks_elsewhere(self) -> None:
        """What it holds is not what its deltas will be against, unless it is told so."""
        self.based = None
        self.remember()

    def knows(self, frames: Iterable[Frame]) -> bool:
        """Whether rows may go to this member as they go to all."""
        if self.sent is None and self.based is None:
            return True
        return all(self._own(frame) is frame for frame in frames)

    def as_known(self, frames: Iterable[Frame]) -> list[Frame]:
        """The rows in terms of what this member has been sent, which they are from now on."""
        rows: list[Frame] = []
        for frame in frames:
            own = self._own(frame)
            if own is not None:
                rows.append(own)
            self.note((frame,))
        return rows

    def note(self, frames: Iterable[Frame]) -> None:
        """These rows are sent."""
        for keys in (self.sent, self.based):
            if keys is not None:
                _note(keys, frames)

    def _own(self, frame: Frame) -> Frame | None:
        """A row for this member: no removal of what it never had, no delta against it."""
        if frame.removed:
            return frame if self.sent is None or frame.key in self.sent else None
        has_base = self.based is None or frame.key in self.based
        return frame if has_base or not isinstance(frame, Row) else frame.whole()


def _note(keys: set[str], frames: Iterable[Frame]) -> None:
    for frame in frames:
        if frame.removed:
            keys.discard(frame.key)
        else:
            keys.add(frame.key)
