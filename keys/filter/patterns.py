"""Patterns: regular expressions of RE2, which takes linear time, and the cost of a filter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import re2

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.fields import Value, is_null
from tidegate.keys.filter.tree import Affix, Call, Field, Like, Literal, Node, children, walk
from tidegate.keys.filter.values import SEPARATOR, Array, Scalar, narrow, text, widened

INSTRUCTIONS_MAX = 4_000

_ESCAPE = re.compile(r"\\.", re.DOTALL)
# The ends of the whole text, single bytes, and literal runs: joined texts change their meaning.
_ALONE = frozenset({"\\A", "\\z", "\\C", "\\Q"})
_NEGATION = "[^"
_LINE_FLAG = re.compile(r"\(\?[A-Za-z-]*m")
_REFERENCE = re.compile(r"\\(.)", re.DOTALL)


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

    ANYWHERE = "by a byte that is not a character"
    LINE = "as lines"
    ALONE = "not at all"


def scope_of(pattern: str) -> Scope:
    """Return what the anchors in a pattern allow; in doubt `ALONE`."""
    bare = _ESCAPE.sub("", pattern)
    if not _ALONE.isdisjoint(_ESCAPE.findall(pattern)):
        return Scope.ALONE
    # `[^` negates a class and anchors nothing.
    anchors = bare.replace(_NEGATION, "")
    if "^" not in anchors and "$" not in anchors:
        return Scope.ANYWHERE
    return Scope.ALONE if _LINE_FLAG.search(bare) else Scope.LINE


@lru_cache(maxsize=1_024)
def _compiled(pattern: str, *options: str) -> Pattern:
    chosen = re2.Options()
    # RE2 would print errors to standard error; the refusal reports them.
    chosen.log_errors = False
    # The automaton grows with the texts it sees, up to this; then RE2 discards it and continues.
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
        raise FilterInvalid("this is not a regular expression of RE2", position) from error


def finder(pattern: str) -> Callable[[bytes], bool]:
    """Return `UTF-8 text -> whether the pattern is in it`, at half the cost of finding groups."""
    search = _compiled(pattern, "never_capture").search
    return lambda text: search(text) is not None


def lines_finder(pattern: str) -> Callable[[bytes], bool]:
    """Return `lines of UTF-8 text -> whether any of them, on its own, has the pattern`."""
    search = _compiled(f"(?m){pattern}", "never_capture", "never_nl").search
    return lambda text: search(text) is not None


# --- The work that a filter may do on one message, shared by all its places (rule filter-4)

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
    """The share of a message that each place of a filter may read (rule filter-4).

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
        """Compute the allowance of a filter."""
        # A subtree that occurs twice is evaluated once, and counts once.
        nodes = set(walk(tree))
        called = [node.name for node in nodes if isinstance(node, Call)]
        seeking = sum(name in _SEEKING or name in _WRITING for name in called)
        patterns = [pattern for node in nodes if (pattern := _pattern(node)) is not None]
        instructions = sum(compiled(pattern).programsize for pattern in patterns)
        instructions += _REPLACING_COST * called.count("REGEXP_REPLACE")
        return cls(
            elements=_ELEMENTS // max(sum(map(_array_reads, nodes)), 1),
            text_bytes=min(_TEXT_BYTES // max(seeking, 1), _TEXT_BYTES_MAX),
            sought_bytes=_SOUGHT_BYTES // max(seeking, 1),
            pattern_bytes=_PATTERN_WORK // max(instructions, 1),
            pattern_texts=_TEXTS_ONE_BY_ONE // max(len(patterns), 1),
        )


def _array_reads(node: Node) -> int:
    """Count how often a node reads arrays: once for each of its paths, more for many affixes."""
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


# --- LIKE and REGEXP_...: patterns on texts of values, within the allowance


def searcher(pattern: str, allowed: Allowance) -> Callable[[Value], bool | None]:
    """Return `value -> whether the pattern is found in an element's text`, None for NULL."""
    found_in, found_in_any = finder(pattern), _array_searcher(pattern, allowed.pattern_texts)

    def found(value: Value) -> bool | None:
        if is_null(value):
            return None
        if isinstance(value, Array):
            return found_in_any(value) if len(value.joined) <= allowed.pattern_bytes else None
        whole = text(value)  # type: ignore[arg-type]  # no object: not null
        return None if len(whole) > allowed.pattern_bytes else found_in(_utf8(whole))

    return found


def _array_searcher(pattern: str, texts_max: int) -> Callable[[Array], bool | None]:
    """Search all texts at once where that gives the same answer, else one by one."""
    found_in, scope = finder(pattern), scope_of(pattern)
    found_in_line = lines_finder(pattern) if scope is Scope.LINE else found_in

    def found(value: Array) -> bool | None:
        texts = value.joined[1:-1]
        if scope is Scope.ANYWHERE:
            return found_in(texts.encode("latin-1"))
        if scope is Scope.LINE and "\n" not in texts:
            return found_in_line(_utf8(texts.replace(SEPARATOR, "\n")))
        each = texts.split(SEPARATOR)
        return any(map(found_in, map(_utf8, each))) if len(each) <= texts_max else None

    return found


def _utf8(whole: str) -> bytes:
    return widened(whole).encode()


def replacer(pattern: str, allowed: Allowance) -> Callable[[Scalar, Scalar | None], str | None]:
    """Return `text, replacement -> text with every match replaced` (rule filter-15)."""
    expression, bytes_max = compiled(pattern), allowed.text_bytes

    def replaced(value: Scalar, new: Scalar | None) -> str | None:
        whole, form = text(value), "" if new is None else text(new)
        if len(whole) > min(allowed.pattern_bytes, bytes_max) or len(form) > bytes_max:
            return None
        return _replaced(expression, widened(whole), form, bytes_max)

    return replaced


def _replaced(expression: Pattern, whole: str, form: str, bytes_max: int) -> str | None:
    pieces: list[str] = []
    done = length = 0
    for match in expression.finditer(whole):
        # An empty match right after another one is not a match of its own.
        if match.start() == match.end() == done and done > 0:
            continue
        groups = (match.group(), *match.groups(""))
        pieces += narrow(whole[done : match.start()]), _template(form, tuple(map(narrow, groups)))
        length += len(pieces[-1]) + len(pieces[-2])
        # Checked while it grows: a short text and replacement can make a very long one.
        if length > bytes_max:
            return None
        done = match.end()
    found = "".join(pieces) + narrow(whole[done:])
    return found if len(found) <= bytes_max else None


def _template(new: str, groups: tuple[str, ...]) -> str:
    r"""Fill `\0` to `\9` into a replacement (rule filter-15); `groups` begins with the match."""

    def filled(reference: re.Match[str]) -> str:
        code = reference.group(1)
        if code not in "0123456789":
            return code
        return groups[int(code)] if int(code) < len(groups) else ""

    return _REFERENCE.sub(filled, new)
