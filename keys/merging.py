"""Registered mergers and matchers: structural conflation in the operator's own words.

They see decoded JSON. A faulty one harms no other part: each call gets values of its own, and one
that raises counts as *no conflation*, or as no match, and is reported to `failed`.
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
    """A merger's answer instead of a merged message (Diffusion's `merge` results)."""

    KEEP_CURRENT = "keep current"
    KEEP_NEW = "keep new"
    NO_CONFLATION = "no conflation"


def unheard(name: str, error: Exception) -> None:
    """Ignore a failure."""


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
        """Return one message for two, the older one first; else a verdict on which to keep."""
        try:
            # New values for each call: a merger that changes its arguments harms no other.
            values = decoded(current), decoded(new)
        except JsonInvalid:
            return Verdict.NO_CONFLATION  # a number that has no value here
        try:
            return _text_of(self.function(*values))
        except Exception as error:
            self.failed(self.name, error)
            return Verdict.NO_CONFLATION

    def merged(self, current: bytes, new: bytes) -> bytes | None:
        """Return the message that is left of two, the older one first; None if both are."""
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
    """A registered matcher: `function(current, new)` is true if two held values may conflate."""

    name: str
    function: Function = field(compare=False, repr=False)
    failed: Failed = field(default=unheard, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    def matches(self, current: bytes, new: bytes) -> bool:
        """Return True if two messages, the older one first, may conflate."""
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
    # Encoded here and checked: subscribers get no text that a publisher could not send.
    text = msgspec.json.encode(answer)
    check_json(text)
    return text
