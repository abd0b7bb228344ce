"""Regular expressions: RE2 over characters, linear in the text, never logging."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import re2

from keys.errors import FilterInvalid

INSTRUCTIONS_MAX = 4_000

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_ALONE = frozenset({"\\A", "\\z", "\\C", "\\Q"})
_NEGATION = "[^"
_LINE_FLAG = re.compile(r"\(\?[A-Za-z-]*m")


class Match(Protocol):
    """What a pattern found."""

    def start(self) -> int:
        """Its first character."""

    def end(self) -> int:
        """The character after it."""

    def group(self) -> str:
        """Its text."""

    def groups(self, default: str) -> tuple[str, ...]:
        """The texts of its groups."""


class Pattern(Protocol):
    """A compiled pattern; `re2` has no public name for it."""

    programsize: int

    def search(self, text: bytes) -> Match | None:
        """The first match."""

    def finditer(self, text: str) -> Iterator[Match]:
        """All matches, not overlapping."""


class Scope(StrEnum):
    """How the texts of an array may be joined so that one search answers for all of them."""

    ANYWHERE = "by a byte that is no character"
    LINE = "as lines"
    ALONE = "not at all"


def scope_of(pattern: str) -> Scope:
    """What the anchors in a pattern allow, leaning to `ALONE`."""
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
    """The compiled pattern.

    Raises:
        FilterInvalid: no RE2 expression, or one whose program takes more than a megabyte.
    """
    try:
        return _compiled(pattern)
    except re2.error as error:
        raise FilterInvalid("this is no regular expression that RE2 takes", position) from error


def finder(pattern: str) -> Callable[[bytes], bool]:
    """`UTF-8 text -> whether the pattern is in it`, half as dear without knowing its groups."""
    search = _compiled(pattern, "never_capture").search
    return lambda text: search(text) is not None


def lines_finder(pattern: str) -> Callable[[bytes], bool]:
    """`lines of UTF-8 text -> whether the pattern is in any of them`, each on its own."""
    search = _compiled(f"(?m){pattern}", "never_capture", "never_nl").search
    return lambda text: search(text) is not None
