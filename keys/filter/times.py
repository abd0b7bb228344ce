"""STRFTIME and STRPTIME, in UTC and English, without a clock or a locale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache

from tidegate.keys.errors import FilterInvalid

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PARTS = re.compile(r"%(?:03f|.|$)|[ \t\n\v\f\r]+|.", re.DOTALL)
_COMPOSED = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M"}
_SECOND_US, _DAY_S = 1_000_000, 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_S, _END_S = -62_135_596_800, 253_402_300_800


def check_format(form: str, position: int) -> None:
    """Refuse unknown directives; both functions have the same ones.

    Raises:
        FilterInvalid: at the format's own position.
    """
    if any(part[0] == "%" and part not in _READ for part in _parts(form)):
        raise FilterInvalid("the format has an unknown directive", position)


def format_time(form: str, seconds: float) -> str | None:
    """Format a time: STRFTIME; None outside the years 1 to 9999."""
    # `date` has no other years; NaN is outside as well.
    if not _FIRST_S <= seconds < _END_S:
        return None
    # Whole microseconds first: a rounded fraction could not carry into the second.
    second, micro = divmod(math.floor(seconds * _SECOND_US), _SECOND_US)
    day, second = divmod(second, _DAY_S)
    civil = date.fromordinal(day + _EPOCH_DAY)
    year, month, weekday = civil.year, civil.month, WEEKDAYS[civil.weekday()]
    of_year = civil.toordinal() - date(year, 1, 1).toordinal() + 1
    hour, minute = second // 3_600, second // 60 % 60
    name = MONTHS[month - 1]
    said = {
        "%Y": f"{year:04}", "%y": f"{year % 100:02}", "%m": f"{month:02}", "%d": f"{civil.day:02}",
        "%H": f"{hour:02}", "%M": f"{minute:02}", "%S": f"{second % 60:02}",
        "%j": f"{of_year:03}", "%b": name[:3], "%B": name, "%a": weekday[:3], "%A": weekday,
        "%I": f"{(hour + 11) % 12 + 1:02}", "%p": "PM" if hour >= 12 else "AM",
        "%f": f"{micro:06}", "%03f": f"{micro // 1_000:03}", "%z": "+0000", "%Z": "UTC",
        "%s": str(day * _DAY_S + second), "%%": "%",
    }  # fmt: skip
    return "".join(said.get(part, part) for part in _parts(form))


def time_parser(form: str) -> Callable[[str], float | None]:
    """Return STRPTIME of one format: text to seconds of the epoch, None if it does not fit."""
    pieces = _parts(form)
    # ASCII: digits of other scripts do not match.
    pattern = re.compile("".join(map(_readable, pieces)), re.ASCII | re.IGNORECASE)
    asked = [part for part in pieces if re.match(r"\((?!\?)", _READ.get(part, ""))]

    def read(text: str) -> float | None:
        found = pattern.fullmatch(text)
        if found is None:
            return None
        return _seconds(dict(zip(asked, map(str.lower, found.groups()), strict=True)))

    return read


_NUMBERS_2 = r"([0-9]{1,2})"
# Two digits at most, and one is enough: publishers leave zeros out.
_READ = {
    "%Y": r"([0-9]{4})", "%y": _NUMBERS_2, "%m": _NUMBERS_2, "%d": _NUMBERS_2,
    "%H": _NUMBERS_2, "%M": _NUMBERS_2, "%S": _NUMBERS_2, "%I": _NUMBERS_2,
    "%j": r"([0-9]{1,3})", "%f": r"([0-9]{1,6})", "%03f": r"([0-9]{1,6})",
    "%s": r"(-?[0-9]{1,12})", "%p": "(AM|PM)", "%%": "%",
    "%b": "(" + "|".join(name[:3] for name in MONTHS) + ")",
    "%B": "(" + "|".join(MONTHS) + ")",
    "%a": "(?:" + "|".join(name[:3] for name in WEEKDAYS) + ")",
    "%A": "(?:" + "|".join(WEEKDAYS) + ")",
    "%z": "(Z|[+-][0-9]{2}:?[0-9]{2})", "%Z": "(?:UTC|GMT|Z)",
}  # fmt: skip


@lru_cache(maxsize=256)
def _parts(form: str) -> tuple[str, ...]:
    """Split a format into directives, runs of white space and other characters."""
    found: list[str] = []
    for part in _PARTS.findall(form):
        found.extend(_PARTS.findall(_COMPOSED.get(part, part)))
    return tuple(found)


def _readable(part: str) -> str:
    """Return the regular expression of one part; it never backtracks into the part."""
    if part in _READ:
        return f"(?>{_READ[part]})"
    if part.isspace():
        return r"(?>[ \t\n\v\f\r]*)"
    return f"(?-i:{re.escape(part)})"


def _seconds(said: dict[str, str]) -> float | None:
    """Return the time that the directives' lower-case texts name, None if there is none."""
    number = {part: int(text) for part, text in said.items() if text.lstrip("-").isdecimal()}
    fraction = said.get("%f", said.get("%03f", "0"))
    micro = int(fraction.ljust(6, "0")) / _SECOND_US
    # Seconds of the epoch are the whole time; other directives are ignored.
    if "%s" in number:
        return number["%s"] + micro
    day = _day(said, number)
    hour = _hour(said, number)
    minute, second = number.get("%M", 0), number.get("%S", 0)
    if day is None or hour is None or minute > 59 or second > 59:
        return None
    whole = day * _DAY_S + hour * 3_600 + minute * 60 + second
    return whole - _offset_s(said.get("%z", "z")) + micro


def _day(said: dict[str, str], number: dict[str, int]) -> int | None:
    """Return the day since the epoch."""
    short = number.get("%y")
    # POSIX: 69 to 99 are years of the 20th century.
    year = 1970 if short is None else short + (1900 if short >= 69 else 2000)
    year = number.get("%Y", year)
    if year == 0:  # the calendar has none
        return None
    if "%j" in number:
        return _day_of_year(year, number["%j"])
    month = number.get("%m", 1)
    name = said.get("%B", said.get("%b"))
    if name is not None:
        month = [full[:3].lower() for full in MONTHS].index(name[:3]) + 1
    try:
        return date(year, month, number.get("%d", 1)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def _hour(said: dict[str, str], number: dict[str, int]) -> int | None:
    if "%I" in number:
        hour = number["%I"]
        return hour % 12 + 12 * (said.get("%p") == "pm") if 1 <= hour <= 12 else None
    hour = number.get("%H", 0)
    return hour if hour <= 23 else None


def _offset_s(zone: str) -> int:
    if zone == "z":
        return 0
    offset = int(zone[1:3]) * 3_600 + int(zone[-2:]) * 60
    return -offset if zone[0] == "-" else offset


def _day_of_year(year: int, number: int) -> int | None:
    first, last = date(year, 1, 1), date(year, 12, 31)
    day = first.toordinal() + number - 1
    return day - _EPOCH_DAY if first.toordinal() <= day <= last.toordinal() else None
