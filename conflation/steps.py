"""Work in steps: work that would take too long is a generator that yields after bounded parts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from heapq import merge
from itertools import count, islice
from typing import Any, TypeVar

import msgspec

from tidegate.conflation.frame import Frame

Item = TypeVar("Item")
Made = TypeVar("Made")
Result = TypeVar("Result")

Steps = Generator[None, None, Result]
"""Work that yields between its steps, and returns its result after the last.

The first step takes a cut of the data; later changes do not affect the result.
"""

ITEMS_AT_ONCE = 500
"""Items of a step: 1 to 4 ms of CPU, and up to 15 where each record is a separate group."""
FEW = 100
"""So few items are worked on in the step that takes the cut, which hundreds may do in one call."""


def items_at_once(cost: int = 1) -> int:
    """Return how many items a step may have, by what each costs."""
    return max(1, ITEMS_AT_ONCE // cost)


def finished(steps: Steps[Result]) -> Result:
    """Run all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def pause_before(items: Sized) -> Steps[None]:
    """Yield before work on the items of a single step, unless they are few.

    `in_steps` yields by itself where there are more.
    """
    if FEW < len(items) <= ITEMS_AT_ONCE:
        yield


def in_steps(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Iterable[Made]], cost: int = 1
) -> Steps[list[Made]]:
    """Return what `work` makes of a sequence, a step at a time."""
    return (yield from in_pieces(items, items_at_once(cost), work))


def in_pieces(
    items: Sequence[Item], size: int, work: Callable[[Sequence[Item]], Iterable[Made]]
) -> Steps[list[Made]]:
    """Return what `work` makes of a sequence, given in pieces of a size."""
    if len(items) <= size:
        return [*work(items)]  # no pause: what is small takes one step
    made: list[Made] = []
    for start in range(0, len(items), size):
        # Before every piece, including the first: the caller takes the cut in the step before, and
        # many callers may do so in one iteration.
        yield
        made += work(items[start : start + size])
    return made


def sorted_in_steps(
    items: Sequence[Item],
    key_of: Callable[[Item], Any],
    size: int,
    most: int | None = None,
) -> Steps[list[Item]]:
    """Return what `sorted` returns, or its first `most` items; pieces are sorted and merged."""
    if len(items) <= size:
        return sorted(items, key=key_of)[:most]
    places = count()

    def run(piece: Sequence[Item]) -> list[list[_Ranked]]:
        return [sorted(_Ranked(key_of(item), next(places), item) for item in piece)]

    runs = yield from in_pieces(items, size, run)
    yield
    ordered: list[Item] = []
    for ranked in islice(merge(*runs), most):
        ordered.append(ranked.item)
        if len(ordered) % size == 0:
            yield
    return ordered


# Not a tuple, which the garbage collector would visit: there is one for each item.
class _Ranked(msgspec.Struct, frozen=True, order=True, gc=False):
    """An item with its sort key; its place breaks ties, so items are never compared."""

    key: Any
    place: int
    item: Any


class RowBuild:
    """Rows of a backfill or a change that are made in steps; equal subscriptions may share them.

    Attributes:
        rows: None until the last step.
        keys: the row keys of a change; the steps fill them in.
    """

    __slots__ = ("__weakref__", "_count", "_has_begun", "_steps", "keys", "rows")

    def __init__(
        self,
        steps: Steps[Sequence[Frame]],
        keys: Sequence[str] = (),
        count: Callable[[], int | None] = int,
    ) -> None:
        """`count` returns how many rows will be deliveries, by default 0; None if not known."""
        self.rows: Sequence[Frame] | None = None
        self.keys = keys
        self._count = count
        self._steps = steps
        self._has_begun = False

    def begin(self) -> bool:
        """Run the first step, unless another subscription has; return True if it was the last."""
        return self.rows is not None if self._has_begun else self.step()

    def step(self) -> bool:
        """Run the next step; return True once the rows are there."""
        if self.rows is None:
            self._has_begun = True
            try:
                next(self._steps)
            except StopIteration as end:
                self.rows = end.value
        return self.rows is not None

    def deliveries(self) -> int:
        """Count the rows that will be deliveries; make them now if they cannot be counted else."""
        counted = self._count()
        if counted is None:
            self.finish()
            counted = self._count()
        return counted or 0

    def finish(self) -> None:
        """Run all remaining steps."""
        while not self.step():
            pass
