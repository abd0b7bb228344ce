"""The syntax of options: a string of them, and each kind of value.

The language is AMPS's: `conflation=1s,conflation_key=[/tickerId]`. `table.py` says which options
there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.subscription import AUTO, NotFound
from tidegate.keys.errors import BookmarkInvalid, KeysError, TextInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import START, Bookmark
from tidegate.keys.text.duration import duration_text, parse_interval
from tidegate.keys.text.rate import parse_rate, rate_text
from tidegate.keys.text.time import parse_time, time_text

# --- A string of options

_SPACE = " \t"
_NAME = re.compile(r"[a-z_]+", re.ASCII).fullmatch
_PLAIN = re.compile(r"[^,\[]*").match
_INNER = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"  # a string
      | \[/[^\]]*\]                          # a path of names of any characters
      | [^\[\]'"]+ | \[ | \]""",
    re.VERBOSE | re.DOTALL,
).match


class Assignment(NamedTuple):
    """`name` or `name=value`: `value` is None for a name alone, then `value_at` is its end."""

    name: str
    at: int
    value: str | None
    value_at: int


def assignments(text: str) -> Iterator[Assignment]:
    """Yield the parts of an options string, in order; brackets hold commas, strings hold brackets.

    Spaces around `,` and `=` and one trailing comma are accepted, as AMPS's clients write them.

    Raises:
        OptionsInvalid: a part without a lower-case name, or a bracket or string left open.
    """
    parts = list(_parts(text))
    # AMPS's clients end their strings with a comma, and an empty text has one empty part.
    if not parts[-1][0].strip(_SPACE):
        parts.pop()
    for part, start in parts:
        yield _assignment(part, start)


def _parts(text: str) -> Iterator[tuple[str, int]]:
    start = at = 0
    while True:
        at = _plain_end(text, at)
        if at < len(text) and text[at] == "[":
            at = _bracket_end(text, at)
            continue
        yield text[start:at], start
        if at == len(text):
            return
        start = at = at + 1


def _plain_end(text: str, at: int) -> int:
    found = _PLAIN(text, at)
    assert found is not None, "it matches the empty text too"
    return found.end()


def _bracket_end(text: str, opened: int) -> int:
    """Return the position after the bracket that closes the one at `opened`."""
    at, depth = opened + 1, 1
    while depth:
        # In whole strings and paths, as these may hold brackets that are not counted.
        found = _INNER(text, at)
        if found is None:
            what = "this bracket is not closed" if at == len(text) else "this string is not closed"
            raise OptionsInvalid(what, opened if at == len(text) else at)
        depth += {"[": 1, "]": -1}.get(found.group(), 0)
        at = found.end()
    return at


def _assignment(part: str, start: int) -> Assignment:
    name, equals, value = part.partition("=")
    at = start + _leading(name)
    name = name.strip(_SPACE)
    if not _NAME(name):
        raise OptionsInvalid(
            "expected the lower-case name of an option, such as conflation=500ms", at
        )
    # A missing value is refused at the end of the name, where it would be.
    if not equals:
        return Assignment(name, at, None, at + len(name))
    value_at = start + part.index("=") + 1 + _leading(value)
    return Assignment(name, at, value.strip(_SPACE), value_at)


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip(_SPACE))


def refused(name: str, error: ValueError, position: int | None) -> OptionsInvalid:
    """Return what a reader found wrong, with the option's name in front.

    The position is the reader's own, inside the value, where it knows one.
    """
    place = getattr(error, "position", None)
    detail = getattr(error, "detail", str(error))
    return OptionsInvalid(f"{name}: {detail}", position if place is None else place)


def join_projection(values: dict[str, Any], positions: dict[str, int]) -> None:
    """Parse a projection together with its grouping; both stand under `projection` then.

    Raises:
        OptionsInvalid: one without the other, or malformed.
    """
    given = [name for name in ("projection", "grouping") if name in values]
    if not given:
        return
    if len(given) == 1:
        raise OptionsInvalid("projection and grouping come together", positions[given[0]])
    grouping = values.pop("grouping")
    try:
        values["projection"] = Projection.parse(*values["projection"], *grouping)
    except KeysError as error:
        # The parser sees both texts, so the place of its error says which option it is about.
        text, at = grouping
        in_grouping = error.position is not None and at <= error.position <= at + len(text)
        name = "grouping" if in_grouping else "projection"
        raise refused(name, error, positions[name]) from None


_OF_AMPS = frozenset({"ack_conflation", "cancel", "expire", "fully_durable", "max_backlog"})
_HINT_EDITS_MAX = 2  # more would suggest options that were not meant
_HINT_CHARACTERS_MAX = 32  # the cost of a comparison grows with the length, a name's does not


def shown(name: str) -> str:
    """Return a name for a refusal: cut where it is too long to be an option's."""
    is_long = len(name) > _HINT_CHARACTERS_MAX
    return f"{name[:_HINT_CHARACTERS_MAX]}…" if is_long else name


def hint(name: str, known_names: Collection[str]) -> str:
    """Return the end of a sentence: the nearest known option if one is near, or whose it is."""
    if name in _OF_AMPS:
        return ", one of AMPS without a counterpart here: see docs/coming-from/amps.md"
    name = name[:_HINT_CHARACTERS_MAX]
    nearest = min(known_names, key=lambda known: _edits(name, known))
    is_near = _edits(name, nearest) <= _HINT_EDITS_MAX
    return f"; the nearest known one is {nearest}" if is_near else ""


def _edits(text: str, other: str) -> int:
    """Count the letters to put in, take out or change (Levenshtein)."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(text, 1):
        before, row[0] = row[0], count
        for at, wanted in enumerate(other, 1):
            before, row[at] = (
                row[at],
                min(row[at] + 1, row[at - 1] + 1, before + (letter != wanted)),
            )
    return row[-1]


# --- Values

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
    """The written form of an option's values.

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


_STARTS_OF_AMPS = {
    "0": "0 of AMPS is epoch here",
    "0|1|": "0|1| of AMPS is now here",
    "recent": "recent of AMPS is the bookmark that you have stored",
}


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
        # For one that is nearly a time, the error says what is wrong with it.
        detail = str(error).replace("expected ", "expected epoch, now, a bookmark or ", 1)
        raise TextInvalid(_STARTS_OF_AMPS.get(text, detail), position) from None


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
