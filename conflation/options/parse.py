"""The options language: `conflation=1s,conflation_key=[/tickerId]`, as AMPS spells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.readers import (
    FLAGS,
    ONLY_IN_A_CHANGE,
    READERS,
    read_value,
    refused,
)
from tidegate.conflation.subscription import NotFound
from tidegate.keys.errors import KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.rate import Rate

# Assignments: an options string taken apart into names and values, with their places.


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


_HINT_EDITS_MAX = 2


@dataclass(frozen=True, slots=True)
class Options:
    """Options as given, each under its own name: None or False where the text says nothing.

    Durations are nanoseconds; `conflation` is 0 for `none`, or "auto". `bookmark` is "epoch",
    "now", a bookmark, or a time in milliseconds. `grouping` is part of `projection`.
    `positions` tells where each name stands; `is_change`: they change a running subscription.
    """

    conflation: int | str | None = None
    conflation_key: KeySpec | None = None
    pace: str | None = None
    edge: str | None = None
    min: int | None = None
    max: int | None = None
    max_age: int | None = None
    never: Filter | None = None
    flush_on: Filter | None = None
    timestamp: bool = False
    receipt: bool = False
    oof: bool = False
    no_empties: bool = False
    send_keys: bool = False
    no_sowkey: bool = False
    progress: bool = False
    select: Select | None = None
    projection: Projection | None = None
    top_n: int | None = None
    skip_n: int | None = None
    batch_size: int | None = None
    bookmark: str | Bookmark | int | None = None
    bookmark_not_found: NotFound | None = None
    rate: Rate | None = None
    rate_max_gap: int | None = None
    reduce: Reduce | None = None
    live: bool = False
    pause: bool = False
    resume: bool = False
    replace: bool = False
    non_regex_topic: bool = False
    positions: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    is_change: bool = False

    @classmethod
    def parse(cls, text: str, *, is_change: bool = False) -> Options:
        """Parse an options string; spaces around `,` and `=` and one trailing comma are fine.

        `is_change`: it is that of a session's PATCH, where `resume` and `replace` exist.

        Raises:
            OptionsInvalid: unknown, repeated or malformed, with its position.
        """
        said: dict[str, Any] = {}
        positions: dict[str, int] = {}
        for name, at, value, value_at in assignments(text):
            if name not in READERS and name not in FLAGS:
                raise OptionsInvalid(f"unknown option{_hint(name)}", at)
            if name in ONLY_IN_A_CHANGE and not is_change:
                raise OptionsInvalid(f"{name}: only where a running subscription is changed", at)
            if name in positions:
                raise OptionsInvalid(f"{name} is given twice", at)
            positions[name] = at
            said[name] = read_value(name, value, value_at)
        _join_projection(said, positions)
        return cls(**said, positions=tuple(positions.items()), is_change=is_change)

    def given(self, name: str) -> bool:
        """Whether the text names this option."""
        return any(name == given for given, _ in self.positions)

    def position(self, name: str) -> int | None:
        """The 0-based character where an option stands, if it was given."""
        return dict(self.positions).get(name)

    def says(self, name: str) -> bool:
        """Whether this option has a value, be it given or taken over."""
        return not _silent(getattr(self, name))

    def over(self, defaults: Options) -> Options:
        """These options, and where they say nothing those."""
        taken = {
            each.name: getattr(defaults, each.name)
            for each in fields(self)
            if each.name not in ("positions", "is_change") and not self.says(each.name)
        }
        return replace(self, **taken)

    def without(self, name: str) -> Options:
        """The same, silent about one option."""
        return replace(self, **{name: getattr(_NOTHING, name)})


_NOTHING = Options()


def _silent(value: object) -> bool:
    return value is None or value is False


def _join_projection(said: dict[str, Any], positions: dict[str, int]) -> None:
    """A projection and its grouping are one thing.

    Raises:
        OptionsInvalid: one without the other, or malformed.
    """
    given = [name for name in ("projection", "grouping") if name in said]
    if not given:
        return
    if len(given) == 1:
        raise OptionsInvalid("projection and grouping come together", positions[given[0]])
    grouping = said.pop("grouping")
    try:
        said["projection"] = Projection.parse(*said["projection"], *grouping)
    except KeysError as error:
        text, at = grouping
        in_grouping = error.position is not None and at <= error.position <= at + len(text)
        name = "grouping" if in_grouping else "projection"
        raise refused(name, error, positions[name]) from None


def _hint(name: str) -> str:
    """The known name that is nearest to an unknown one, if one is near."""
    nearest = min((*READERS, *FLAGS), key=lambda known: _edits(name[:32], known))
    near = _edits(name[:32], nearest) <= _HINT_EDITS_MAX
    return f"; the nearest known one is {nearest}" if near else ""


def _edits(text: str, other: str) -> int:
    """How many letters must be put in, taken out or changed (Levenshtein)."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(text, 1):
        before, row[0] = row[0], count
        for at, wanted in enumerate(other, 1):
            before, row[at] = (
                row[at],
                min(row[at] + 1, row[at - 1] + 1, before + (letter != wanted)),
            )
    return row[-1]
