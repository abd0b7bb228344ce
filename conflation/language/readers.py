"""Readers: one for each option, from the text of its value to what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conflation.bookmark import Bookmark
from conflation.duration import DAY, MILLISECOND, parse_duration
from conflation.errors import BookmarkInvalid, OptionsInvalid
from conflation.language.iso_time import parse_time
from conflation.language.rate import parse_rate
from conflation.subscription import NotFound
from keys.filter import Filter
from keys.reducers import Reduce
from keys.select import Select
from keys.spec import KeySpec

AUTO = "auto"
EPOCH = "epoch"
NOW = "now"

DURATION_NS_MIN = MILLISECOND
DURATION_NS_MAX = DAY
TOP_N_MAX = 10_000
SKIP_N_MAX = 1_000_000
BATCH_SIZE_MAX = 10_000

Reader = Callable[[str, int], Any]
"""`(value, position)` to what it says; raises `ValueError`, ours with the position in it."""


def _duration(text: str, position: int) -> int:
    duration_ns = parse_duration(text)
    if not DURATION_NS_MIN <= duration_ns <= DURATION_NS_MAX:
        raise ValueError("a duration is from 1ms to 1d")
    return duration_ns


def _interval(text: str, position: int) -> int | str:
    if text in ("none", AUTO):
        return AUTO if text == AUTO else 0
    try:
        return _duration(text, position)
    except ValueError as error:
        raise ValueError(f"{error}, or auto, or none") from None


def _one_of(*words: str) -> Reader:
    def read(text: str, position: int) -> str:
        if text not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return text

    return read


def _number(least: int, most: int) -> Reader:
    def read(text: str, position: int) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 9):
            raise ValueError("expected a whole number")
        if not least <= int(text) <= most:
            raise ValueError(f"expected a number from {least} to {most}")
        return int(text)

    return read


def _filter(text: str, position: int) -> Filter:
    if text[:1] != "[" or text[-1:] != "]":
        raise ValueError("expected a filter in brackets")
    return Filter.parse(text[1:-1], position + 1)


def _bookmark(text: str, position: int) -> str | Bookmark | int:
    if text in (EPOCH, NOW):
        return text
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        pass
    try:
        return parse_time(text)
    except ValueError as error:
        raise ValueError(f"expected epoch, now, a bookmark or an ISO time; {error}") from None


def _not_found(text: str, position: int) -> NotFound:
    return NotFound(_one_of(*NotFound)(text, position))


def _bracketed(text: str, position: int) -> tuple[str, int]:
    """Kept as it is: a projection and its grouping are read together."""
    return text, position


FLAGS = (
    *("timestamp", "receipt", "oof", "no_empties", "send_keys", "no_sowkey", "progress"),
    *("live", "pause", "resume", "replace", "non_regex_topic"),
)
"""Options that stand alone, as in AMPS: there is no `oof=true`."""

ONLY_IN_A_CHANGE = ("resume", "replace")
"""Options of a session's PATCH."""

READERS: Mapping[str, Reader] = {
    "conflation": _interval,
    "conflation_key": KeySpec.parse,
    "pace": _one_of("batch", "key"),
    "edge": _one_of("trailing", "leading"),
    "min": _duration,
    "max": _duration,
    "max_age": _duration,
    "never": _filter,
    "flush_on": _filter,
    "select": Select.parse,
    "projection": _bracketed,
    "grouping": _bracketed,
    "top_n": _number(1, TOP_N_MAX),
    "skip_n": _number(0, SKIP_N_MAX),
    "batch_size": _number(1, BATCH_SIZE_MAX),
    "bookmark": _bookmark,
    "bookmark_not_found": _not_found,
    "rate": lambda text, position: parse_rate(text),
    "rate_max_gap": _duration,
    "reduce": Reduce.parse,
}


def read_value(name: str, value: str | None, position: int) -> Any:
    """What an option says; True for a flag.

    Raises:
        OptionsInvalid: a value that is missing, malformed, or one too many; the option's name
            stands in front.
    """
    if name in FLAGS:
        if value is not None:
            raise OptionsInvalid(f"{name}: it stands alone, without a value", position)
        return True
    if value is None:
        raise OptionsInvalid(f"{name}: expected = and a value", position)
    try:
        return READERS[name](value, position)
    except ValueError as error:
        raise refused(name, error, position) from None


def refused(name: str, error: ValueError, position: int | None) -> OptionsInvalid:
    """What a reader found wrong, with the option's name in front, at its own place if known."""
    place = getattr(error, "position", None)
    detail = getattr(error, "detail", str(error))
    return OptionsInvalid(f"{name}: {detail}", position if place is None else place)
