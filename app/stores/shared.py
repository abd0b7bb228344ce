"""A store that several gateways share: what it tells each of them of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.problems import Problem
from app.stores.store import Store, TopicRecord


@dataclass(frozen=True, slots=True)
class Change:
    """A definition that was written: `record` is None where the topic was deleted."""

    version: int
    name: str
    record: TopicRecord | None


class DefinitionsMoved(Exception):
    """Another gateway has changed a topic since; what was decided is to be decided anew."""


class EpochMoved(Problem):
    """The topic has begun again, perhaps by another definition: nothing of a write has an effect.

    As it is raised it is `bus-unavailable`: whoever can decide anew by what holds now does.
    """

    def __init__(self) -> None:
        detail = "The topic's history is being looked into; try again."
        super().__init__("bus-unavailable", detail, headers={"Retry-After": "1"})


class SharedStore(Store, Protocol):
    """A store through which gateways hear of one another.

    Who writes a definition must have seen all before it: `put_topic` and `delete_topic` raise
    `DefinitionsMoved` else. What was appended, by whomever, comes back in order. `append` raises
    `EpochMoved` where the topic has begun again.
    """

    shared: Literal[True]

    async def changes(self) -> Sequence[Change]:
        """Definitions that were written since `records`, or since the last call."""
