"""The loop of the main thread: streams are looked at until all are over or the end is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.errors import PipelineError
from pipeline.operations.condition import Condition
from pipeline.operations.supervised import Say, Supervised

WATCH_EVERY_S = 0.1


class Asked(Protocol):
    """Somebody may ask for the end."""

    @property
    def asked(self) -> bool:
        """Whether it was."""

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when it is asked for."""


@dataclass
class Onlooker:
    """Somebody who is told how all streams stand, so often."""

    look: Callable[[Sequence[Condition]], None]
    every_s: float
    due_s: float = 0.0


def watch(
    watched: Sequence[Supervised],
    onlookers: Sequence[Onlooker],
    stop: Asked,
    say: Say,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    renew: Callable[[], None] | None = None,
) -> None:
    """Look at streams and tell onlookers, until all are over or the end is asked for.

    A stream that fails for good is told at once where others go on. `renew` may bring streams in
    and take them out; more may always come then.
    """
    for onlooker in onlookers:
        onlooker.due_s = monotonic() + onlooker.every_s
    told: list[PipelineError] = []
    while not stop.asked:
        if renew is not None:
            renew()
        for each in watched:
            each.look()
        if renew is None and all(each.is_over for each in watched):
            return
        for each in watched:
            if each.failure is not None and each.failure not in told:
                told.append(each.failure)
                say(f"{each.failure}; the other streams go on")
        now_s = monotonic()
        due = [each for each in onlookers if now_s >= each.due_s]
        tell(watched, due)
        for onlooker in due:  # what was missed meanwhile is not made up for
            onlooker.due_s += onlooker.every_s * (1 + (now_s - onlooker.due_s) // onlooker.every_s)
        stop.wait(WATCH_EVERY_S)


def tell(watched: Sequence[Supervised], onlookers: Sequence[Onlooker]) -> None:
    """Tell these onlookers how streams stand now."""
    if not onlookers:
        return
    conditions = [each.condition() for each in watched]
    for onlooker in onlookers:
        onlooker.look(conditions)
