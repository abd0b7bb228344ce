"""Registered mergers and matchers: structural conflation in the operator's own words.

They see decoded JSON. A faulty one harms no other part: each call gets values of its own, and one
that raises counts as *no conflation*, or as no match, and is reported to `failed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

import msgspec

from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

Function = Callable[[Any, Any], Any]
Failed = Callable[[str, Exception], None]
_PLAIN_TYPES = (bool, int, str)


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


# A Decimal is written with its digits, as the messages that it was read from.
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _text_of(answer: Any) -> bytes | Verdict:
    if isinstance(answer, Verdict):
        return answer
    _check_value(answer)
    text = _ENCODER.encode(answer)
    # Subscribers get no text that a publisher could not send.
    check_json(text)
    return text


def _check_value(value: Any) -> None:
    """Check that a value is one of JSON.

    The encoder would change others without a word: NaN into null, bytes into base64, a set into an
    array in no order.

    Raises:
        TypeError: another type, or a name that is no text.
        ValueError: a number that is not finite.
    """
    match value:
        case dict():
            for name, member in value.items():
                if type(name) is not str:
                    raise TypeError(f"the name {name!r} is not a string")
                _check_value(member)
        case list() | tuple():
            for item in value:
                _check_value(item)
        case float() | Decimal():
            if not isfinite(value):
                raise ValueError(f"{value} is not a JSON number")
        case _:
            if value is not None and type(value) not in _PLAIN_TYPES:
                raise TypeError(f"{type(value).__name__} is not a JSON type")
