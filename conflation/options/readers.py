"""Readers: one for each option, from the text of its value to what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.subscription import NotFound
from tidegate.keys.errors import BookmarkInvalid, TextInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import START, Bookmark
from tidegate.keys.text.duration import parse_interval
from tidegate.keys.text.rate import parse_rate
from tidegate.keys.text.time import parse_time

AUTO = "auto"
NOW = "now"

TOP_N_MAX = 10_000
SKIP_N_MAX = 1_000_000
BATCH_SIZE_MAX = 10_000

Reader = Callable[[str, int], Any]
"""`(value, position)` to what it says; raises `ValueError`, ours with the position in it."""


def _interval(text: str, position: int) -> int | str:
    if text in ("none", AUTO):
        return AUTO if text == AUTO else 0
    try:
        return parse_interval(text, position)
    except TextInvalid as error:
        raise TextInvalid(f"{error}, or auto, or none", position) from None


def _at_its_start(parse: Reader) -> Reader:
    """Refuse a value where it begins: clients mark the whole value, not one character of it."""

    def read(text: str, position: int) -> Any:
        try:
            return parse(text, position)
        except TextInvalid as error:
            raise TextInvalid(str(error), position) from None

    return read


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
    if text in (START, NOW):
        return text
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        pass
    try:
        return parse_time(text, position)
    except TextInvalid as error:
        detail = f"expected epoch, now, a bookmark or a time; {error}"
        raise TextInvalid(detail, position) from None


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
    "min": _at_its_start(parse_interval),
    "max": _at_its_start(parse_interval),
    "max_age": _at_its_start(parse_interval),
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
    "rate": _at_its_start(parse_rate),
    "rate_max_gap": _at_its_start(parse_interval),
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
