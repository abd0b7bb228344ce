"""A crew: the workers of one parent, as one of them knows itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Crew:
    """One worker among `count` of the same parent; its `number`, from 1, stays when it is replaced.

    `id` is the parent's, new each time that it starts.
    """

    id: str
    number: int
    count: int
