"""Assignments: an options string taken apart into names and values, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from conflation.errors import OptionsInvalid

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
    """The parts of an options string, in order; brackets hold commas, strings hold brackets.

    Spaces around `,` and `=` and one trailing comma are accepted, as AMPS's clients write them.

    Raises:
        OptionsInvalid: a part without a lower-case name, or a bracket or string left open.
    """
    parts = list(_parts(text))
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
    """Behind the bracket that closes the one at `opened`."""
    at, depth = opened + 1, 1
    while depth:
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
    if not equals:
        return Assignment(name, at, None, at + len(name))
    value_at = start + part.index("=") + 1 + _leading(value)
    return Assignment(name, at, value.strip(_SPACE), value_at)


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip(_SPACE))
