"""A member: one subscription in its lane. A position instead of a queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from conflation.count import Count
from conflation.frame import Frame, Row
from conflation.subscription import Subscription


@dataclass(slots=True, eq=False)
class Member:
    """Where one subscriber stands.

    `position` counts as its lane counts: everything up to it has been taken. `cut` is the
    offset of the join: nothing at or below it comes from the lane. `joined` is the feed's count
    of accepted messages at the join; `delivered` counts live rows; `joins` is the lane's count
    of joins. `conflated_to`: a backlog of every message was given up to this offset.
    What was given up stands in `owed`: what the next row of each key counts beyond itself.
    `sent`: the keys it was told of, kept only where that decides what it may be told next:
    without a snapshot a removal, or a delta, of a key never sent would make no sense.
    """

    name: str
    session: str
    subscription: Subscription
    position: int = 0
    cut: int = 0
    joined: int = 0
    joins: int = 0
    delivered: int = 0
    conflated_to: int = 0
    owed: dict[str, Count] = field(default_factory=dict)
    sent: set[str] | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells members apart: session, subscription, topic."""
        return self.session, self.name, self.subscription.topic

    def knows(self, frames: tuple[Frame, ...]) -> bool:
        """Whether rows may go to this member as they go to all."""
        if self.sent is None:
            return True
        return all(frame.key in self.sent for frame in frames if _needs_base(frame))

    def as_known(self, frames: tuple[Frame, ...]) -> list[Frame]:
        """The rows in terms of what this member has been sent, which they are from now on."""
        if self.sent is None:
            return list(frames)
        rows: list[Frame] = []
        for frame in frames:
            if frame.key in self.sent or not _needs_base(frame):
                rows.append(frame)
            elif isinstance(frame, Row):
                rows.append(frame.whole())
            _note(self.sent, frame)
        return rows

    def note(self, frames: tuple[Frame, ...]) -> None:
        """These rows are sent."""
        if self.sent is not None:
            for frame in frames:
                _note(self.sent, frame)


def _needs_base(frame: Frame) -> bool:
    return frame.removed or (isinstance(frame, Row) and frame.patch is not None)


def _note(sent: set[str], frame: Frame) -> None:
    if frame.removed:
        sent.discard(frame.key)
    else:
        sent.add(frame.key)
