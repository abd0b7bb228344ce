"""The time in a message: a number of seconds or milliseconds, or ISO 8601, as nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tidegate.keys.errors import PathInvalid
from tidegate.keys.path import FieldPath
from tidegate.keys.text.time import SECOND_NS, parse_iso_ns
from tidegate.pipeline.errors import UsageInvalid
from tidegate.pipeline.intervals import MILLISECOND_NS, Column

# Milliseconds reach 1e11 in 1973, where seconds reach 1e8: since then no number has two meanings.
SECONDS_FROM, SECONDS_BELOW = 1e8, 1e11
NS_BELOW = 2**63 - 2**53  # an interval more must not overflow


class Unit(StrEnum):
    """The unit of a time that is a number.

    `auto`: seconds since 1970 from 1e8 to 1e11 (1973 to 5138), else milliseconds.
    """

    AUTO = "auto"
    MILLISECONDS = "ms"
    SECONDS = "s"


@dataclass(frozen=True, slots=True)
class TimeField:
    """The field of a message's time, and the unit of numbers in it; texts are ISO 8601."""

    path: FieldPath
    unit: Unit = Unit.AUTO

    @classmethod
    def of_options(cls, path: str | None, unit: str) -> TimeField | None:
        """Return the field of `--time-field` and `--time-unit`, None without `--time-field`.

        Raises:
            UsageInvalid: either has no meaning.
        """
        # The unit also without a field: a typing error is shown where it is made.
        if unit not in list(Unit):
            raise UsageInvalid(f"--time-unit: expected auto, ms or s, not {unit!r}")
        if path is None:
            return None
        try:
            return cls(FieldPath.parse(path), Unit(unit))
        except PathInvalid as error:
            raise UsageInvalid(f"--time-field {path}: {error.detail}") from None

    def ns(self, found: object) -> int:
        """Return the nanoseconds of a decoded time; a number counts to the microsecond.

        Raises:
            ValueError: no time.
        """
        ns = parse_iso_ns(found) if isinstance(found, str) else self._number_ns(found)
        if abs(ns) >= NS_BELOW:
            raise ValueError("a time out of range")
        return ns

    def column_ns(self, found: list[Any]) -> Column:
        """Return `ns` for the decoded times of many messages."""
        whole = np.array(found, np.int64) if set(map(type, found)) == {int} else None
        times = None if whole is None else self._whole_ns(whole)
        return np.array([self.ns(each) for each in found], np.int64) if times is None else times

    def _whole_ns(self, times: Column) -> Column | None:
        """Return integers as nanoseconds if all are of one unit, and none is odd."""
        if len(times):
            low, high = int(times.min()), int(times.max())
            scale_ns = self._scale_ns(low)
            alike = scale_ns == self._scale_ns(high) and (low < SECONDS_BELOW) == (
                high < SECONDS_BELOW
            )
            if low >= 0 and alike and high * scale_ns < NS_BELOW:
                return times * scale_ns
        return None

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
