"""The options language: `conflation=1s,conflation_key=[/tickerId]`, as AMPS spells it.

This module takes a text apart and reads values; `table.py` says which options there are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.values import Syntax
from tidegate.keys.errors import KeysError
from tidegate.keys.projection import Projection

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
    """Return the position behind the bracket that closes the one at `opened`."""
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
        raise OptionsInvalid("expected the lower-case name of an option", at)
    # A missing value is refused at the end of the name, where it would be.
    if not equals:
        return Assignment(name, at, None, at + len(name))
    value_at = start + part.index("=") + 1 + _leading(value)
    return Assignment(name, at, value.strip(_SPACE), value_at)


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip(_SPACE))


def read_value(name: str, syntax: Syntax[Any] | None, value: str | None, position: int) -> Any:
    """Return the value of an option; True for a flag, which has no syntax.

    Raises:
        OptionsInvalid: a value that is missing, malformed, or one too many; the option's name
            stands in front.
    """
    if syntax is None:
        if value is not None:
            raise OptionsInvalid(f"{name}: it stands alone, without a value", position)
        return True
    if value is None:
        raise OptionsInvalid(f"{name}: expected = and a value", position)
    try:
        return syntax.read(value, position)
    except ValueError as error:
        raise refused(name, error, position) from None


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


_HINT_EDITS_MAX = 2  # more would suggest options that were not meant
_HINT_CHARACTERS_MAX = 32  # the cost of a comparison grows with the length, a name's does not


def hint(name: str, known_names: Collection[str]) -> str:
    """Return the end of a sentence that names the nearest known option, if one is near."""
    name = name[:_HINT_CHARACTERS_MAX]
    nearest = min(known_names, key=lambda known: _edits(name, known))
    return (
        f"; the nearest known one is {nearest}" if _edits(name, nearest) <= _HINT_EDITS_MAX else ""
    )


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
