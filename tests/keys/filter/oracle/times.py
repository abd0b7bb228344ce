"""STRFTIME and STRPTIME: rule filter-15, a directive at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

from tests.keys.filter.oracle.reading import Refused

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONTHS = "January February March April May June July August September October November December"
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
LONG = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M"}
PIECE = re.compile(r"%03f|%[YmdHMSyjbBaAIpfFTRzZs%]|[^%]", re.DOTALL)

WRITTEN: dict[str, Callable[[datetime], str]] = {
    "Y": lambda t: f"{t.year:04}",
    "m": lambda t: f"{t.month:02}",
    "d": lambda t: f"{t.day:02}",
    "H": lambda t: f"{t.hour:02}",
    "M": lambda t: f"{t.minute:02}",
    "S": lambda t: f"{t.second:02}",
    "y": lambda t: f"{t.year % 100:02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "b": lambda t: MONTHS.split()[t.month - 1][:3],
    "B": lambda t: MONTHS.split()[t.month - 1],
    "a": lambda t: WEEKDAYS.split()[t.weekday()][:3],
    "A": lambda t: WEEKDAYS.split()[t.weekday()],
    "I": lambda t: f"{t.hour % 12 or 12:02}",
    "p": lambda t: "AM" if t.hour < 12 else "PM",
    "f": lambda t: f"{t.microsecond:06}",
    "03f": lambda t: f"{t.microsecond // 1_000:03}",
    "z": lambda t: "+0000",
    "Z": lambda t: "UTC",
    "s": lambda t: str((t - EPOCH) // timedelta(seconds=1)),
    "%": lambda t: "%",
}


def _names(words: str, length: int | None = None) -> str:
    return "|".join(word[:length] for word in words.split())


READ = {
    "Y": "[0-9]{4}",
    **dict.fromkeys("mdHIMSy", "[0-9]{1,2}"),
    "j": "[0-9]{1,3}",
    "f": "[0-9]{1,6}",
    "03f": "[0-9]{1,6}",
    "s": "-?[0-9]{1,12}",
    "b": _names(MONTHS, 3),
    "B": _names(MONTHS),
    "a": _names(WEEKDAYS, 3),
    "A": _names(WEEKDAYS),
    "p": "AM|PM",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
    "Z": "UTC|GMT|Z",
    "%": "%",
}


def checked_format(pattern: bytes) -> list[str]:
    """A format in pieces: directives (beginning with %) and characters."""
    text = pattern.decode()
    for directive, longer in LONG.items():
        text = re.sub(f"((?:^|[^%])(?:%%)*)%{directive}", rf"\g<1>{longer}", text)
    pieces = PIECE.findall(text)
    if "".join(pieces) != text:
        raise Refused("no such directive")
    return pieces


def time_written(pieces: list[str], seconds: float) -> bytes | None:
    """STRFTIME."""
    if math.isnan(seconds) or math.isinf(seconds):
        return None
    microseconds = seconds * 1_000_000
    if math.isinf(microseconds):
        return None
    try:
        time = EPOCH + timedelta(microseconds=math.floor(microseconds))
    except OverflowError:
        return None
    return "".join(WRITTEN[p[1:]](time) if p[0] == "%" else p for p in pieces).encode()


def time_read(text: bytes, pieces: list[str]) -> float | None:
    """STRPTIME."""
    fields = _fields(text.decode(errors="replace"), pieces)
    if fields is None:
        return None
    try:
        seconds = _seconds(fields)
    except ValueError:
        return None
    digits = fields.get("f", fields.get("03f", "0"))
    return float(seconds + Fraction(int(digits), 10 ** len(digits)))


def _fields(text: str, pieces: list[str]) -> dict[str, str] | None:
    fields: dict[str, str] = {}
    at = 0
    for piece in pieces:
        pattern = r"\s*" if piece.isspace() else re.escape(piece)
        if piece[0] == "%":
            pattern = f"(?i:{READ[piece[1:]]})"
        match = re.compile(pattern).match(text, at)
        if not match:
            return None
        at = match.end()
        if piece[0] == "%":
            fields[piece[1:]] = match.group()
    return fields if at == len(text) else None


def _seconds(fields: dict[str, str]) -> int:
    """Whole seconds of the epoch; ValueError if there is no such date."""
    if "s" in fields:
        return int(fields["s"])
    minute, second = _sixtieth(fields, "M"), _sixtieth(fields, "S")
    time = datetime(_year(fields), 1, 1, _hour(fields), minute, second, tzinfo=UTC)
    day = date(time.year, _month(fields), int(fields.get("d", "1")))
    if "j" in fields:
        day = date(time.year, 1, 1) + timedelta(days=int(fields["j"]) - 1)
        if day.year != time.year or int(fields["j"]) < 1:
            raise ValueError
    return (
        (day - date(1970, 1, 1)).days * 86_400
        + time.hour * 3_600
        + time.minute * 60
        + time.second
        - _zone(fields)
    )


def _year(fields: dict[str, str]) -> int:
    if "y" in fields:
        return int(fields["y"]) + (1900 if int(fields["y"]) >= 69 else 2000)
    return int(fields.get("Y", "1970"))


def _month(fields: dict[str, str]) -> int:
    for directive, names in (("b", _names(MONTHS, 3)), ("B", _names(MONTHS))):
        if directive in fields:
            return names.lower().split("|").index(fields[directive].lower()) + 1
    return int(fields.get("m", "1"))


def _hour(fields: dict[str, str]) -> int:
    if "I" not in fields:
        return int(fields.get("H", "0"))
    hour = int(fields["I"])
    if not 1 <= hour <= 12:
        raise ValueError
    return hour % 12 + (12 if fields.get("p", "AM").upper() == "PM" else 0)


def _sixtieth(fields: dict[str, str], directive: str) -> int:
    return int(fields.get(directive, "0"))


def _zone(fields: dict[str, str]) -> int:
    """Seconds east of Greenwich."""
    zone: Any = re.fullmatch("([+-])([0-9]{2}):?([0-9]{2})", fields.get("z", ""))
    if not zone:
        return 0
    hours, minutes = int(zone.group(2)), int(zone.group(3))
    if hours > 23 or minutes > 59:
        raise ValueError
    return (hours * 3_600 + minutes * 60) * (1 if zone.group(1) == "+" else -1)
