"""A driver whose flushes and steps are large with a few rows, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from tests.support.manual_driver import ManualDriver, batches
from tidegate.conflation import frame
from tidegate.conflation.boards import board
from tidegate.conflation.frame import Batch
from tidegate.conflation.lanes import catch_up, flushes, interval, stateful
from tidegate.conflation.sessions import rows as session_rows

AT_ONCE = 3
MODULES = (frame, board, catch_up, interval, stateful, flushes, session_rows)
LETTERS = "abcdefghij"
SUMS = "projection=[/k,SUM(/v) AS /v],grouping=[/k]"


def driver(records_max: int | None = 2) -> ManualDriver:
    made = ManualDriver(items_at_once=records_max)
    made.topic()
    return made


def open_all(made: ManualDriver, between: Callable[[], object] = lambda: None) -> int:
    """Do all steps; return how many they were."""
    steps = 0
    while made.engine.has_openings:
        made.engine.open_step(made.now)
        between()
        steps += 1
    return steps


def every(value: int, letters: str = LETTERS) -> str:
    return " ".join(f"{letter}X{value}" for letter in letters)


def flush_in_turns(
    made: ManualDriver, between: Callable[[], None] = lambda: None, *, takes: bool = True
) -> list[Batch]:
    """Advance until nothing is due, and take after each call; `between` runs between two calls."""
    taken: list[Batch] = []
    while (due := made.engine.next_deadline()) is not None and due <= made.now:
        made.engine.advance(made.now)
        between()
        if takes:
            taken += batches(made.take())
    taken += batches(made.take())
    open_all(made)  # what a member far behind is sent is made in steps
    return taken + batches(made.take())


def newest(found: list[Batch]) -> dict[str, bytes]:
    return {row.key: row.payload for row in chain(*(batch.frames for batch in found))}


def records(made: ManualDriver) -> dict[str, bytes]:
    sow = made.engine.topic("px").sow
    assert sow is not None
    return {frame.key: frame.payload for frame in sow.board.live()}
