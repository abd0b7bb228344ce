"""Key specs: the ordered field paths that tell one record from another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from keys.errors import PathInvalid
from keys.path import FieldPath

FIELDS_MAX = 16


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One or more field paths; hashable, so that equal specs share their boards.

    The empty spec is the topic itself: every message has the one key `[]`.
    """

    paths: tuple[FieldPath, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> KeySpec:
        """From path texts, as a topic's `key` field lists them; none gives the empty spec.

        Raises:
            PathInvalid: a malformed or repeated path, or more than 16.
        """
        return cls._checked([(text, 0) for text in texts])

    @classmethod
    def parse(cls, text: str, position: int = 0) -> KeySpec:
        """From the options spelling `[/a,/b]`; `position` is where it stands in the options.

        Raises:
            PathInvalid: brackets missing, an empty list, or as `of`.
        """
        if len(text) < 2 or text[0] != "[" or text[-1] != "]":
            raise PathInvalid("expected field paths in brackets, such as [/a,/b]", position)
        parts = [
            (part.strip(), position + 1 + start + len(part) - len(part.lstrip()))
            for part, start in split_list(text[1:-1])
        ]
        return cls._checked(parts)

    @classmethod
    def _checked(cls, parts: list[tuple[str, int]]) -> KeySpec:
        if len(parts) > FIELDS_MAX:
            raise PathInvalid(f"a key has at most {FIELDS_MAX} fields", parts[FIELDS_MAX][1])
        paths: list[FieldPath] = []
        for text, position in parts:
            path = FieldPath.parse(text, position)
            if path in paths:
                raise PathInvalid("a path stands twice in the key", position)
            paths.append(path)
        return cls(tuple(paths))

    def __str__(self) -> str:
        """The canonical options spelling, `[/a,/b]`."""
        return "[" + ",".join(str(path) for path in self.paths) + "]"

    def __bool__(self) -> bool:
        return bool(self.paths)


def split_list(text: str) -> Iterator[tuple[str, int]]:
    """Parts of a comma-separated text with their positions; brackets and quotes hold commas."""
    depth, quote, start, escaped = 0, "", 0, False
    for at, character in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "[(":
            depth += 1
        elif character in "])":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:at], start
            start = at + 1
    yield text[start:], start
