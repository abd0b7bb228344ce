"""Select lists, `[-/,+/a]`: which fields of a message a subscriber gets (AMPS's `select`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from tidegate.keys.errors import PathInvalid
from tidegate.keys.jsontext import Members, items, members, written
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import split_list


@dataclass(frozen=True, slots=True)
class Directive:
    """Keep or drop what stands at a place and below it; no steps mean the whole message."""

    keep: bool
    steps: tuple[str, ...]

    def __str__(self) -> str:
        path = str(FieldPath(self.steps)) if self.steps else "/"
        return ("+" if self.keep else "-") + path


@dataclass(frozen=True, slots=True)
class Select:
    """What of a message is kept: the most specific directive wins, and the first among equals.

    What no directive names is kept.
    """

    directives: tuple[Directive, ...] = ()

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Select:
        """From the options spelling `[-/,+/a,-/a/b]`; `position` is where it stands in them.

        Raises:
            PathInvalid: brackets or a sign missing, an empty list, a malformed path, or a path
                with an index.
        """
        if len(text) < 2 or text[0] != "[" or text[-1] != "]":
            raise PathInvalid("expected a select list in brackets, such as [-/,+/a]", position)
        found: dict[tuple[str, ...], Directive] = {}
        for part, start in split_list(text[1:-1]):
            place = position + 1 + start + len(part) - len(part.lstrip())
            directive = _directive(part.strip(), place)
            found.setdefault(directive.steps, directive)
        return cls(tuple(found.values()))

    def __str__(self) -> str:
        """The canonical options spelling, `[-/,+/a]`."""
        return "[" + ",".join(map(str, self.directives)) + "]"

    @property
    def keeps_all(self) -> bool:
        """Whether every message passes as it is."""
        return all(directive.keep for directive in self.directives)

    def apply(self, payload: bytes) -> bytes:
        """What is kept of a message, value by value as published; one that is no object, whole."""
        if self.keeps_all or members(payload) is None:
            return payload
        kept = _kept(payload, _tree(self.directives))
        return b"{}" if kept is None else kept


@dataclass(slots=True)
class _Node:
    """What happens to a field, and to those inside it that are named."""

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
    """The directives as a tree, in which each node knows what happens to what it does not name."""
    root = _Node(keep=True, named={})
    for directive in sorted(directives, key=lambda one: len(one.steps)):
        node = root
        for step in directive.steps:
            node = node.named.setdefault(step, _Node(node.keep, {}))
        node.keep = directive.keep
    return root


def _kept(text: bytes, node: _Node) -> bytes | None:
    """What is kept of a value, None if that is nothing.

    Objects that a directive looks into are written anew, so that of duplicate names nothing is
    left but the last.
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
        return written(stay) if stay or node.keep else None
    if (elements := items(text)) is not None:
        parts = [part for each in elements if (part := _kept(bytes(each), node)) is not None]
        return b"[" + b",".join(parts) + b"]" if parts or node.keep else None
    return text if node.keep else None
