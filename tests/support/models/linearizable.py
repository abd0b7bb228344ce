"""Whether a history of operations could have happened one after the other (Wing and Gong)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

State = Hashable


@dataclass(frozen=True)
class Operation:
    """From when to when it ran, and what it makes of a state: None where that does not fit."""

    begun: int
    ended: int
    step: Callable[[State], State | None]
    name: str = ""


def linearizable(operations: Sequence[Operation], state: State) -> bool:
    """Whether some order that respects what was over before what explains every answer."""
    tried: set[tuple[frozenset[int], State]] = set()
    todo = [(frozenset(range(len(operations))), state)]
    while todo:
        left, state = todo.pop()
        if not left:
            return True
        if (left, state) in tried:
            continue
        tried.add((left, state))
        first_end = min(operations[each].ended for each in left)
        for each in left:
            if operations[each].begun <= first_end:
                after = operations[each].step(state)
                if after is not None:
                    todo.append((left - {each}, after))
    return False
