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
    without a snapshot a removal, or a delta, of a key never sent would make no sense. `missed`:
    keys that came while it was behind and were left out as superseded, so that it does not
    hold them although its position is past them.
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
    missed: set[str] = field(default_factory=set)

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells members apart: session, subscription, topic."""
        return self.session, self.name, self.subscription.topic

    def knows(self, frames: tuple[Frame, ...]) -> bool:
        """Whether rows may go to this member as they go to all."""
        if self.sent is None and not self.missed:
            return True
        return all(self._holds(frame.key) for frame in frames if _needs_base(frame))

    def as_known(self, frames: tuple[Frame, ...]) -> list[Frame]:
        """The rows in terms of what this member has been sent, which they are from now on."""
        if self.sent is None and not self.missed:
            return list(frames)
        rows: list[Frame] = []
        for frame in frames:
            if self._holds(frame.key) or not _needs_base(frame):
                rows.append(frame)
            elif isinstance(frame, Row):
                rows.append(frame.whole())
            self._note(frame)
        return rows

    def note(self, frames: tuple[Frame, ...]) -> None:
        """These rows are sent."""
        if self.sent is not None or self.missed:
            for frame in frames:
                self._note(frame)

    def _holds(self, row_key: str) -> bool:
        return row_key not in self.missed and (self.sent is None or row_key in self.sent)

    def _note(self, frame: Frame) -> None:
        self.missed.discard(frame.key)
        if self.sent is None:
            return
        if frame.removed:
            self.sent.discard(frame.key)
        else:
            self.sent.add(frame.key)


def _needs_base(frame: Frame) -> bool:
    return frame.removed or (isinstance(frame, Row) and frame.patch is not None)
