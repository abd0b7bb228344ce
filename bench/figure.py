"""A measured figure: its value, what is wanted of it, and if a change of it is a regression."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """One line of the report.

    Args:
        name: unique in its suite.
        value: the measured one.
        unit: what it counts.
        at_most: what is wanted, if less is better.
        at_least: what is wanted, if more is better.
        note: what a reader has to know of it, in a sentence.
        scale: how it is compared with the last report: "ratio" as it is, "cpu" after the speed of
            this machine's core is taken out, "none" not at all.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    scale: str = "none"

    @property
    def more_is_better(self) -> bool:
        """Whether a larger value is the better one."""
        return self.at_least is not None or self.unit.endswith("/s")

    @property
    def verdict(self) -> str:
        """Whether it is what is wanted; nothing where nothing is."""
        if self.at_most is None and self.at_least is None:
            return ""
        low = self.at_least is None or self.value >= self.at_least
        high = self.at_most is None or self.value <= self.at_most
        return "met" if low and high else "not met"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all does not exceed; the values are in order."""
    return values[min(len(values) - 1, int(share * len(values)))]


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return float(statistics.median(values))
