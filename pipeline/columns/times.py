"""Times that stand in messages: numbers of seconds or milliseconds, or ISO 8601, as nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tidegate.keys.path import FieldPath
from tidegate.keys.text.time import SECOND_NS, parse_iso_ns
from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Column

SECONDS_FROM, SECONDS_BELOW = 1e8, 1e11
NS_BELOW = 2**63 - 2**53  # an interval more must not overflow


class Unit(StrEnum):
    """What a time that is a number counts.

    `auto`: seconds since 1970 from 1e8 to 1e11 (1973 to 5138), else milliseconds.
    """

    AUTO = "auto"
    MILLISECONDS = "ms"
    SECONDS = "s"


@dataclass(frozen=True, slots=True)
class TimeField:
    """Where a message's time stands, and in what unit; ISO 8601 where it is a text."""

    path: FieldPath
    unit: Unit = Unit.AUTO

    def ns(self, found: object) -> int:
        """Nanoseconds of a decoded time; a number to the microsecond.

        Raises:
            ValueError: no time.
        """
        ns = parse_iso_ns(found) if isinstance(found, str) else self._number_ns(found)
        if abs(ns) >= NS_BELOW:
            raise ValueError("a time out of range")
        return ns

    def column_ns(self, found: list[Any]) -> Column:
        """As `ns`, for the decoded times of many messages."""
        if set(map(type, found)) == {int}:
            times = np.array(found, np.int64)
            low, high = int(times.min()), int(times.max())
            scale_ns = self._scale_ns(low)
            alike = scale_ns == self._scale_ns(high) and (low < SECONDS_BELOW) == (
                high < SECONDS_BELOW
            )
            if low >= 0 and alike and high * scale_ns < NS_BELOW:
                return times * scale_ns
        return np.array([self.ns(each) for each in found], np.int64)

    def _number_ns(self, found: object) -> int:
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ValueError("no time")
        scale_ns = self._scale_ns(abs(found))
        if isinstance(found, int):
            return found * scale_ns
        return round(found * (scale_ns // 1_000)) * 1_000

    def _scale_ns(self, size: float) -> int:
        is_seconds = self.unit is Unit.SECONDS or (
            self.unit is Unit.AUTO and SECONDS_FROM <= size < SECONDS_BELOW
        )
        return SECOND_NS if is_seconds else MILLISECOND_NS
