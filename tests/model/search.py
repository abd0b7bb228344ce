"""An exhaustive search: every order in which the steps of a model can happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


class Violation(Exception):
    """A step that breaks a promise."""


def search(first: State, steps: Callable[[State], Iterable[tuple[str, State]]]) -> int:
    """Visit all states that can be reached; return how many there are.

    Args:
        first: the state to begin with.
        steps: returns what can happen next, by name; raises Violation where that breaks a promise.

    Raises:
        Violation: with the shortest way to it, a step on a line.
    """
    came_from: dict[State, tuple[str, State] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        try:
            for name, following in steps(state):
                if following not in came_from:
                    came_from[following] = name, state
                    waiting.append(following)
        except Violation as violation:
            way = [str(violation)]
            at = came_from[state]
            while at is not None:
                name, before = at
                way.append(name)
                at = came_from[before]
            raise Violation("\n".join(reversed(way))) from None
    return len(came_from)
