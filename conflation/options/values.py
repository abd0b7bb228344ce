"""The values of options: how each kind is read, printed, and shown on the reference page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidegate.conflation.subscription import NotFound
from tidegate.keys.errors import BookmarkInvalid, TextInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import START, Bookmark
from tidegate.keys.text.duration import duration_text, parse_interval
from tidegate.keys.text.rate import parse_rate, rate_text
from tidegate.keys.text.time import parse_time, time_text

AUTO = "auto"
NOW = "now"

TOP_N_MAX = 10_000
SKIP_N_MAX = 1_000_000
BATCH_SIZE_MAX = 10_000

_DIGITS_MAX = 9  # more than any bound has: a number of a million digits is not converted

Value_co = TypeVar("Value_co", covariant=True)
Reader = Callable[[str, int], Value_co]
"""`(text, position)` to a value; raises `ValueError`, ours with the position of the fault."""


@dataclass(frozen=True, slots=True)
class Syntax(Generic[Value_co]):
    """How the value of an option is written.

    `form` is what the reference page shows, `read` parses a text, `text` gives the one canonical
    text of a value: reading that again gives an equal value.
    """

    form: str
    read: Reader[Value_co]
    text: Callable[[Any], str] = str


def _at_its_start(parse: Reader[Value_co]) -> Reader[Value_co]:
    """Refuse a value where it begins: clients mark the whole value, not one character of it."""

    def read(text: str, position: int) -> Value_co:
        try:
            return parse(text, position)
        except TextInvalid as error:
            raise TextInvalid(str(error), position) from None

    return read


def _read_interval(text: str, position: int) -> int | str:
    if text in ("none", AUTO):
        return AUTO if text == AUTO else 0
    try:
        return parse_interval(text, position)
    except TextInvalid as error:
        # A misspelt word reads as a malformed duration, so the words are part of the answer.
        raise TextInvalid(f"{error}, or auto, or none", position) from None


def _interval_text(value: int | str) -> str:
    return value if isinstance(value, str) else duration_text(value) if value else "none"


def _read_filter(text: str, position: int) -> Filter:
    if text[:1] != "[" or text[-1:] != "]":
        raise ValueError("expected a filter in brackets")
    return Filter.parse(text[1:-1], position + 1)


def _read_bookmark(text: str, position: int) -> str | Bookmark | int:
    if text in (START, NOW):
        return text
    # A bookmark goes first: `20250909T171919-1130` is one, and by its form also a time.
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        pass
    try:
        return parse_time(text, position)
    except TextInvalid as error:
        detail = f"expected epoch, now, a bookmark or a time; {error}"
        raise TextInvalid(detail, position) from None


def _bookmark_text(value: object) -> str:
    return time_text(value) if isinstance(value, int) else str(value)


def _read_word(text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
    return text


def one_of(*words: str) -> Syntax[str]:
    """Return the syntax of a choice between words."""
    return Syntax(_listed(words), lambda text, _: _read_word(text, words))


def whole_number(least: int, most: int) -> Syntax[int]:
    """Return the syntax of a decimal number between two bounds, both included."""

    def read(text: str, position: int) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
            raise ValueError("expected a whole number")
        if not least <= int(text) <= most:
            raise ValueError(f"expected a number from {least} to {most}")
        return int(text)

    return Syntax(f"{least:,} to {most:,}", read)


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


INTERVAL = Syntax(f"a duration, {_listed((AUTO, 'none'))}", _read_interval, _interval_text)
"""Nanoseconds; 0 for `none`."""

DURATION = Syntax("a duration", _at_its_start(parse_interval), duration_text)
"""Nanoseconds, 1 ms to 1 d."""

KEY = Syntax("`[/a,/b]`", KeySpec.parse)
FILTER = Syntax("`[filter]`", _read_filter, "[{}]".format)
SELECT = Syntax("`[-/,+/a]`", Select.parse)
REDUCE = Syntax("`[/a:sum,/b:max@hi]`", Reduce.parse)

BOOKMARK = Syntax(f"{_listed((START, NOW))}, a bookmark, a time", _read_bookmark, _bookmark_text)
"""A word, a bookmark, or wall time in milliseconds."""

NOT_FOUND = Syntax(
    _listed(tuple(NotFound)), lambda text, _: NotFound(_read_word(text, tuple(NotFound)))
)
RATE = Syntax("`1000`, `500KB`, `2X`", _at_its_start(parse_rate), rate_text)

# A projection and its grouping refer to each other, so they are kept as they are and parsed
# together; the result stands under `projection`, and prints both.
BRACKETED: Syntax[Any] = Syntax("`[…]`", lambda text, position: (text, position))
PROJECTION: Syntax[Any] = Syntax(
    BRACKETED.form, BRACKETED.read, lambda both: str(both).removeprefix("projection=")
)
