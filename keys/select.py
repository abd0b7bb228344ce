"""Select lists, `[-/,+/a]`: the fields of a message that a subscriber gets (AMPS's `select`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from tidegate.keys.errors import PathInvalid
from tidegate.keys.jsontext import Members, items, members, object_text
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import split_list


@dataclass(frozen=True, slots=True)
class Directive:
    """Keep or drop a place and all below it; no steps mean the whole message."""

    keep: bool
    steps: tuple[str, ...]

    def __str__(self) -> str:
        path = str(FieldPath(self.steps)) if self.steps else "/"
        return ("+" if self.keep else "-") + path


@dataclass(frozen=True, slots=True)
class Select:
    """The fields of a message to keep: the most specific directive wins, the first among equals.

    Fields that no directive names are kept.
    """

    directives: tuple[Directive, ...] = ()

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Select:
        """Parse the options spelling `[-/,+/a,-/a/b]`; `position` is that of the text.

        Raises:
            PathInvalid: brackets or a sign missing, an empty list, a malformed path, or a path
                with an index.
        """
        if len(text) < 2 or text[0] != "[" or text[-1] != "]":
            raise PathInvalid("expected a select list in brackets, such as [-/,+/a]", position)
        # The first of two directives for one place counts.
        found: dict[tuple[str, ...], Directive] = {}
        for part, start in split_list(text[1:-1]):
            place = position + 1 + start + len(part) - len(part.lstrip())
            directive = _directive(part.strip(), place)
            found.setdefault(directive.steps, directive)
        return cls(tuple(found.values()))

    def __str__(self) -> str:
        """Return the canonical options spelling, `[-/,+/a]`."""
        return "[" + ",".join(map(str, self.directives)) + "]"

    @property
    def keeps_all(self) -> bool:
        """True if every message passes unchanged."""
        return all(directive.keep for directive in self.directives)

    def keeps(self, path: FieldPath) -> bool:
        """Return True if a field is kept whole; elements of arrays are kept with their array."""
        steps = tuple(step for step in path.steps if isinstance(step, str))
        below = (it.keep for it in self.directives if it.steps[: len(steps)] == steps)
        return self._keeps(steps) and all(below)

    def within(self, other: Select) -> Select:
        """Return the selection of what both keep."""
        # Between two places that a directive names nothing changes, so those places are enough.
        places = dict.fromkeys(it.steps for it in ((*self.directives, *other.directives)))
        return Select(
            tuple(Directive(self._keeps(steps) and other._keeps(steps), steps) for steps in places)
        )

    def _keeps(self, steps: tuple[str, ...]) -> bool:
        """Return whether the place itself is kept: the directive of the most steps decides."""
        above = [it for it in self.directives if steps[: len(it.steps)] == it.steps]
        return max(above, key=lambda it: len(it.steps)).keep if above else True

    def apply(self, payload: bytes) -> bytes:
        """Return the kept part of a message, values as published; anything but an object whole."""
        # Not even a canonical copy: nothing is taken away.
        if self.keeps_all or members(payload) is None:
            return payload
        kept = _kept(payload, _tree(self.directives))
        return b"{}" if kept is None else kept


@dataclass(slots=True)
class _Node:
    """Keep or drop a field, with exceptions for the named fields inside it."""

    keep: bool
    named: dict[str, _Node]


def _directive(text: str, position: int) -> Directive:
    if text[:1] not in ("+", "-"):
        raise PathInvalid("expected + or - before the path", position)
    if text[1:] == "/":
        return Directive(text[0] == "+", ())
    path = FieldPath.parse(text[1:], position + 1)
    steps = tuple(step for step in path.steps if isinstance(step, str))
    if len(steps) < len(path.steps):
        raise PathInvalid("a select list names fields, not places in an array", position + 1)
    return Directive(text[0] == "+", steps)


@lru_cache(maxsize=1_024)
def _tree(directives: tuple[Directive, ...]) -> _Node:
    """Return the directives as a tree; each node knows if it keeps what it does not name."""
    root = _Node(keep=True, named={})
    # Shorter ones first: a field inherits from what it lies in.
    for directive in sorted(directives, key=lambda one: len(one.steps)):
        node = root
        for step in directive.steps:
            node = node.named.setdefault(step, _Node(node.keep, {}))
        node.keep = directive.keep
    return root


def _kept(text: bytes, node: _Node) -> bytes | None:
    """Return the part of a value that is kept, None if there is none.

    Objects that a directive looks into are rebuilt, so only the last of duplicate names remains.
    """
    if not node.named:
        return text if node.keep else None
    if (fields := members(text)) is not None:
        stay: Members = {}
        for name, value in fields.items():
            inner = node.named.get(name)
            if inner is not None:
                part = _kept(bytes(value), inner)
                if part is not None:
                    stay[name] = msgspec.Raw(part)
            elif node.keep:
                stay[name] = value
        return object_text(stay) if stay or node.keep else None
    if (elements := items(text)) is not None:
        parts = [part for each in elements if (part := _kept(bytes(each), node)) is not None]
        return b"[" + b",".join(parts) + b"]" if parts or node.keep else None
    return text if node.keep else None
