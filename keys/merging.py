"""Registered mergers and matchers: structural conflation in the operator's own words.

They see decoded JSON, and can hurt nobody: each call has values of its own, one that raises counts
as *no conflation*, or as no match, and `failed` is told of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

Function = Callable[[Any, Any], Any]
Failed = Callable[[str, Exception], None]


class Verdict(Enum):
    """What a merger may answer instead of a merged message (Diffusion's `merge` results)."""

    KEEP_CURRENT = "keep current"
    KEEP_NEW = "keep new"
    NO_CONFLATION = "no conflation"


def unheard(name: str, error: Exception) -> None:
    """Of failures that nobody counts."""


@dataclass(frozen=True, slots=True)
class Merger:
    """A registered merger, known by its name `package.module:function`.

    `function(current, new)` takes two decoded JSON values, the older one first, and returns the
    merged value or a `Verdict`. It has no side effects; merges are shared by all subscribers.
    """

    name: str
    function: Function = field(compare=False, repr=False)
    failed: Failed = field(default=unheard, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    def answer(self, current: bytes, new: bytes) -> bytes | Verdict:
        """One message for two, the older one first; else which of the two is kept, or both."""
        try:
            values = decoded(current), decoded(new)
        except JsonInvalid:
            return Verdict.NO_CONFLATION  # a number that has no value here
        try:
            return _text_of(self.function(*values))
        except Exception as error:
            self.failed(self.name, error)
            return Verdict.NO_CONFLATION

    def merged(self, current: bytes, new: bytes) -> bytes | None:
        """The message that is left of two, the older one first; None: both are."""
        match self.answer(current, new):
            case Verdict.KEEP_CURRENT:
                return current
            case Verdict.KEEP_NEW:
                return new
            case Verdict.NO_CONFLATION:
                return None
            case text:
                return text


@dataclass(frozen=True, slots=True)
class Matcher:
    """A registered matcher: `function(current, new)` tells whether two held values may conflate."""

    name: str
    function: Function = field(compare=False, repr=False)
    failed: Failed = field(default=unheard, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    def matches(self, current: bytes, new: bytes) -> bool:
        """Whether two messages, the older one first, may conflate."""
        try:
            values = decoded(current), decoded(new)
        except JsonInvalid:
            return False
        try:
            return bool(self.function(*values))
        except Exception as error:
            self.failed(self.name, error)
            return False


def _text_of(answer: Any) -> bytes | Verdict:
    if isinstance(answer, Verdict):
        return answer
    text = msgspec.json.encode(answer)
    check_json(text)
    return text
