"""Times of day and year as users write them, in milliseconds of the epoch; no clock in it."""

from __future__ import annotations

import re

_TIME = re.compile(
    r"""(?P<year>\d{4})(?P<dash>-?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)
        (?:T(?P<hour>\d\d)(?P<colon>:?)(?P<minute>\d\d)
           (?:(?P=colon)(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?
           (?P<zone>Z|(?P<sign>[+-])(?P<zone_hour>\d\d):?(?P<zone_minute>\d\d))?)?""",
    re.VERBOSE | re.ASCII,
).fullmatch
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_BEFORE_1970 = 719_162
_DAY_MS = 86_400_000


def parse_time(text: str) -> int:
    """ISO 8601, extended or basic (`20250909T171919.976304Z`, as AMPS writes it); UTC without zone.

    A date alone is its midnight. Parts of a millisecond count as a whole one: as a start, the
    time is never before the one that was written.

    Raises:
        ValueError: not such a time, or no such day.
    """
    found = _TIME(text)
    if found is None:
        raise ValueError("expected a time such as 2025-09-09T17:19:19Z")
    part = {name: int(digits or 0) for name, digits in found.groupdict().items() if _counts(name)}
    _check(part)
    minutes = part["hour"] * 60 + part["minute"]
    zone = part["zone_hour"] * 60 + part["zone_minute"]
    minutes -= -zone if found["sign"] == "-" else zone
    day_ms = (minutes * 60 + part["second"]) * 1_000
    return _days(part["year"], part["month"], part["day"]) * _DAY_MS + day_ms + _ms(found)


def time_text(timestamp_ms: int) -> str:
    """The canonical spelling, `2025-09-09T17:19:19.976Z`, of years 1 to 9999."""
    days, day_ms = divmod(timestamp_ms, _DAY_MS)
    year, month, day = _date(days)
    seconds, ms = divmod(day_ms, 1_000)
    minutes, second = divmod(seconds, 60)
    fraction = f".{ms:03}" if ms else ""
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{fraction}"
    return f"{year:04}-{month:02}-{day:02}T{clock}Z"


def _counts(name: str) -> bool:
    return name not in ("dash", "colon", "zone", "sign", "fraction")


def _check(part: dict[str, int]) -> None:
    in_clock = part["hour"] <= 23 and part["minute"] <= 59 and part["second"] <= 59
    in_zone = part["zone_hour"] <= 14 and part["zone_minute"] <= 59
    if not in_clock or not in_zone or not part["year"] or not 1 <= part["month"] <= 12:
        raise ValueError("there is no such time")
    if not 1 <= part["day"] <= _month_days(part["year"], part["month"]):
        raise ValueError("there is no such day")


def _ms(found: re.Match[str]) -> int:
    fraction = found["fraction"] or ""
    return -(-int(fraction.ljust(9, "0")) // 1_000_000)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01."""
    before = sum(_month_days(year, earlier) for earlier in range(1, month))
    return _days_before(year) - _DAYS_BEFORE_1970 + before + day - 1


def _date(days: int) -> tuple[int, int, int]:
    ordinal = days + _DAYS_BEFORE_1970
    year = ordinal * 400 // 146_097 + 1
    while _days_before(year) > ordinal:
        year -= 1
    while _days_before(year + 1) <= ordinal:
        year += 1
    day, month = ordinal - _days_before(year), 1
    while day >= _month_days(year, month):
        day -= _month_days(year, month)
        month += 1
    return year, month, day + 1


def _days_before(year: int) -> int:
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400


def _month_days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_DAYS[month - 1] + (leap and month == 2)
