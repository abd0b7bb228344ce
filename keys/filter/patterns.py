"""Regular expressions of RE2, whose time is linear in the text, and the cost of a filter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import re2

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.tree import Affix, Call, Field, Like, Literal, Node, children, walk

INSTRUCTIONS_MAX = 4_000

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_ALONE = frozenset({"\\A", "\\z", "\\C", "\\Q"})
_NEGATION = "[^"
_LINE_FLAG = re.compile(r"\(\?[A-Za-z-]*m")


class Match(Protocol):
    """A match of a pattern."""

    def start(self) -> int:
        """Return the first character's index."""

    def end(self) -> int:
        """Return the index after the last character."""

    def group(self) -> str:
        """Return the text of the match."""

    def groups(self, default: str) -> tuple[str, ...]:
        """Return the texts of the groups."""


class Pattern(Protocol):
    """A compiled pattern; `re2` has no public name for it."""

    programsize: int

    def search(self, text: bytes) -> Match | None:
        """Find the first match."""

    def finditer(self, text: str) -> Iterator[Match]:
        """Find all matches that do not overlap."""


class Scope(StrEnum):
    """A way to join the texts of an array so that one search answers for all of them."""

    ANYWHERE = "by a byte that is no character"
    LINE = "as lines"
    ALONE = "not at all"


def scope_of(pattern: str) -> Scope:
    """Return what the anchors in a pattern allow; in doubt `ALONE`."""
    bare = _ESCAPE.sub("", pattern)
    if not _ALONE.isdisjoint(_ESCAPE.findall(pattern)):
        return Scope.ALONE
    anchors = bare.replace(_NEGATION, "")
    if "^" not in anchors and "$" not in anchors:
        return Scope.ANYWHERE
    return Scope.ALONE if _LINE_FLAG.search(bare) else Scope.LINE


@lru_cache(maxsize=1_024)
def _compiled(pattern: str, *options: str) -> Pattern:
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.max_mem = 1 << 20
    for option in options:
        setattr(chosen, option, True)
    expression: Pattern = re2.compile(pattern, chosen)
    return expression


def compiled(pattern: str, position: int | None = None) -> Pattern:
    """Return the compiled pattern.

    Raises:
        FilterInvalid: not an RE2 expression, or one whose program takes more than a megabyte.
    """
    try:
        return _compiled(pattern)
    except re2.error as error:
        raise FilterInvalid("this is no regular expression that RE2 takes", position) from error


def finder(pattern: str) -> Callable[[bytes], bool]:
    """Return `UTF-8 text -> whether the pattern is in it`, at half the cost of finding groups."""
    search = _compiled(pattern, "never_capture").search
    return lambda text: search(text) is not None


def lines_finder(pattern: str) -> Callable[[bytes], bool]:
    """Return `lines of UTF-8 text -> whether any of them, on its own, has the pattern`."""
    search = _compiled(f"(?m){pattern}", "never_capture", "never_nl").search
    return lambda text: search(text) is not None


# The work that a filter may do on one message, shared by all its places (rule filter-4).
BRACKETS_MAX = 12_000
# a string that is read as a number costs as much as this many elements
READING_COST = 4
_ELEMENTS = 12_000
_ITEMS = 8
_TEXT_BYTES = 40_000
_TEXT_BYTES_MAX = 8_192
_SOUGHT_BYTES = 100_000
_PATTERN_WORK = 750_000
_REPLACING_COST = 2_000
_TEXTS_ONE_BY_ONE = 1_000
_SEEKING = frozenset({"INSTR", "INSTR_I", "STREQUAL_I"})
_WRITING = frozenset(
    {
        *("TRIM", "LTRIM", "RTRIM", "REVERSE", "UPPER", "LOWER", "CONCAT", "REPLACE", "MD5"),
        *("CRC32", "ARRAY_TO_STRING", "REGEXP_REPLACE", "STRPTIME"),
    }
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """The share of a message that each place of a filter may look at (rule filter-4).

    The cost of a filter is bounded as a whole, so the more places it has, the less each may read.
    `elements` of an array, with arrays in it and their elements; `text_bytes` of a text for
    functions that write one, `sought_bytes` for those that search it; `pattern_bytes` for regular
    expressions, which try at most `pattern_texts` of an array one by one.
    """

    elements: int
    text_bytes: int
    sought_bytes: int
    pattern_bytes: int
    pattern_texts: int

    @classmethod
    def of(cls, tree: Node) -> Allowance:
        """Compute the allowance of a filter; a subtree that occurs twice is evaluated once."""
        nodes = set(walk(tree))
        called = [node.name for node in nodes if isinstance(node, Call)]
        seeking = sum(name in _SEEKING or name in _WRITING for name in called)
        patterns = [pattern for node in nodes if (pattern := _pattern(node)) is not None]
        instructions = sum(compiled(pattern).programsize for pattern in patterns)
        instructions += _REPLACING_COST * called.count("REGEXP_REPLACE")
        return cls(
            elements=_ELEMENTS // max(sum(map(_looks, nodes)), 1),
            text_bytes=min(_TEXT_BYTES // max(seeking, 1), _TEXT_BYTES_MAX),
            sought_bytes=_SOUGHT_BYTES // max(seeking, 1),
            pattern_bytes=_PATTERN_WORK // max(instructions, 1),
            pattern_texts=_TEXTS_ONE_BY_ONE // max(len(patterns), 1),
        )


def _looks(node: Node) -> int:
    """Count a node's looks at arrays: one for each of its paths, or some for affixes."""
    paths = sum(isinstance(child, Field) for child in set(children(node)))
    if isinstance(node, Affix) and isinstance(node.value, Field):
        return paths + (len(node.items) - 1) // _ITEMS
    return paths


def _pattern(node: Node) -> str | None:
    match node:
        case Like(_, pattern):
            return pattern
        case Call("REGEXP_MATCH" | "REGEXP_REPLACE", (_, Literal(str(pattern)), *_)):
            return pattern
    return None
