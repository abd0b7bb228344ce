"""Registered mergers and matchers: structural conflation in the operator's own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Verdict(Enum):
    """What a merger may answer instead of a merged message (Diffusion's `merge` results)."""

    KEEP_CURRENT = "keep current"
    KEEP_NEW = "keep new"
    NO_CONFLATION = "no conflation"


@dataclass(frozen=True, slots=True)
class Merger:
    """A registered merger, known by its name `package.module:function`.

    `function(current, new)` takes two decoded JSON values, the older one first, and returns the
    merged value or a `Verdict`. It has no side effects; merges are shared by all subscribers.
    """

    name: str
    function: Callable[[Any, Any], Any] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Matcher:
    """A registered matcher: `function(current, new)` tells whether two held values may conflate."""

    name: str
    function: Callable[[Any, Any], bool] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name
