"""A member: one subscription in its lane. A position instead of a queue."""

from __future__ import annotations

from dataclasses import dataclass

from conflation.subscription import Subscription


@dataclass(slots=True, eq=False)
class Member:
    """Where one subscriber stands.

    `position` counts as its lane counts: everything up to it has been taken. `cut` is the
    offset of the join: nothing at or below it comes from the lane.
    `conflated_to`: a backlog of every message was given up to this offset; up to there the
    board answers, beyond it the list. `joined` is the feed's count of accepted messages at
    the join; `delivered` counts live rows.
    """

    name: str
    session: str
    subscription: Subscription
    position: int
    cut: int
    joined: int
    conflated_to: int = 0
    delivered: int = 0
