"""Work in steps: what costs too much at once is a generator that pauses after each bounded part."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from itertools import count
from typing import Any, TypeVar

import msgspec

from tidegate.conflation.frame import Frame

Item = TypeVar("Item")
Made = TypeVar("Made")
Result = TypeVar("Result")

Steps = Generator[None, None, Result]
"""Work that pauses between its steps, and returns its result after the last.

What it works on is fixed in its first step: everything after that sees the cut of that moment.
"""

# A pause costs a turn of the caller. So cheap work on each item, such as to look at a flag, is done
# on this many times as many.
CHEAP = 20


def finished(steps: Steps[Result]) -> Result:
    """Do all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def in_pieces(
    items: Sequence[Item], size: int | None, work: Callable[[Sequence[Item]], Iterable[Made]]
) -> Steps[list[Made]]:
    """Return what `work` makes of a sequence, given in pieces of a size; None: as it is."""
    made: list[Made] = []
    for at, piece in enumerate(_pieces(items, size)):
        if at:  # no pause after the last piece: what is small takes one step
            yield
        made += work(piece)
    return made


def _pieces(items: Sequence[Item], size: int | None) -> Iterator[Sequence[Item]]:
    if size is None or len(items) <= size:
        yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]


def sorted_in_steps(
    items: Sequence[Item], key_of: Callable[[Item], Any], size: int | None
) -> Steps[list[Item]]:
    """Return what `sorted` returns: pieces are sorted one by one, and then merged."""
    if size is None or len(items) <= size:
        return sorted(items, key=key_of)
    places = count()

    def run(piece: Sequence[Item]) -> list[list[_Ranked]]:
        return [sorted(_Ranked(key_of(item), next(places), item) for item in piece)]

    runs = yield from in_pieces(items, size, run)
    yield
    ordered: list[Item] = []
    for ranked in merge(*map(_taken_out, runs)):
        ordered.append(ranked.item)
        if len(ordered) % size == 0:
            yield
    return ordered


def _taken_out(run: list[_Ranked]) -> Iterator[_Ranked]:
    # Each is freed once it is merged: all of them together would take as long as several steps.
    run.reverse()
    while run:
        yield run.pop()


# No tuple, which the garbage collector would visit: there is one for each item.
class _Ranked(msgspec.Struct, frozen=True, order=True, gc=False):
    """An item with what it is sorted by; its place breaks ties, so items are never compared."""

    key: Any
    place: int
    item: Any


class RowBuild:
    """Rows of a backfill that are made in steps; equal subscriptions may wait for the same.

    Attributes:
        rows: None until the last step.
    """

    __slots__ = ("__weakref__", "_steps", "rows")

    def __init__(self, steps: Steps[Sequence[Frame]]) -> None:
        self.rows: Sequence[Frame] | None = None
        self._steps = steps

    def step(self) -> bool:
        """Do the next part of the work; True once the rows are there."""
        if self.rows is None:
            try:
                next(self._steps)
            except StopIteration as end:
                self.rows = end.value
        return self.rows is not None

    def finish(self) -> None:
        """Do all that is left at once."""
        while not self.step():
            pass
