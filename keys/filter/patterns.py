"""Regular expressions: RE2 over characters, linear in the text, never logging."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import re2

from keys.errors import FilterInvalid

INSTRUCTIONS_MAX = 4_000


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

    def search(self, text: str) -> Match | None:
        """The first match."""

    def finditer(self, text: str) -> Iterator[Match]:
        """All matches, not overlapping."""


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    expression: Pattern = re2.compile(pattern, options)
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
