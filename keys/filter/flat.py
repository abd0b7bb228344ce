"""Decoded JSON arrays to flat lists of values, with few steps for each element."""

from __future__ import annotations

from itertools import chain
from typing import Any

from keys.filter.arrays import OBJECT, Opaque
from keys.filter.numbers import Scalar, narrow, within
from keys.filter.tokens import INTEGER_MAX, INTEGER_MIN

_JOINT = "\x00"


def opened(items: list[Any], elements_max: int) -> list[Any] | None:
    """The elements with the arrays among them opened at every depth, in order (rule 89).

    None if there are more than `elements_max`, arrays in it and their elements included.
    """
    passed = len(items)
    while passed <= elements_max:
        kinds = set(map(type, items))
        if list not in kinds:
            return items
        if len(kinds) > 1:
            return _opened_one_by_one(items, elements_max - passed)
        passed += sum(map(len, items))
        items = list(chain.from_iterable(items)) if passed <= elements_max else items
    return None


def _opened_one_by_one(items: list[Any], more_max: int) -> list[Any] | None:
    flat: list[Any] = []
    waiting = [iter(items)]
    while waiting:
        for item in waiting[-1]:
            if type(item) is not list:
                flat.append(item)
            elif (more_max := more_max - len(item)) < 0:
                return None
            else:
                waiting.append(iter(item))
                break
        else:
            waiting.pop()
    return flat


def elements_of(items: list[Any]) -> list[Scalar | Opaque | None]:
    """Opened elements as values: only kinds of which something is different are looked through."""
    kinds = set(map(type, items))
    if dict in kinds:
        items = [OBJECT if type(item) is dict else item for item in items]
    if int in kinds:
        integers = items if len(kinds) == 1 else [item for item in items if type(item) is int]
        if min(integers) < INTEGER_MIN or max(integers) > INTEGER_MAX:
            items = [within(item) if type(item) is int else item for item in items]
    if str in kinds:
        strings = items if len(kinds) == 1 else [item for item in items if type(item) is str]
        changed = strings_of(strings)
        if changed is not strings:
            following = iter(changed)
            items = [next(following) if type(item) is str else item for item in items]
    return items


def strings_of(strings: list[str]) -> list[str | None]:
    """Strings as bytes (rule 93), empty ones None (rule 87); the list itself if nothing changes."""
    joined = _JOINT.join(strings)
    found: list[str | None] = strings  # type: ignore[assignment]  # nothing is put into it
    if not joined.isascii():
        together = joined.count(_JOINT) == len(strings) - 1
        found = narrow(joined).split(_JOINT) if together else list(map(narrow, strings))  # type: ignore[assignment]  # as above
    return [each or None for each in found] if "" in found else found


def scalar_of(inner: Any) -> Scalar | Opaque | None:
    """Decoded JSON other than an array as a value."""
    if isinstance(inner, str):
        return narrow(inner) or None
    if isinstance(inner, dict):
        return OBJECT
    if isinstance(inner, int) and not isinstance(inner, bool):
        return within(inner)
    return inner  # type: ignore[no-any-return]  # a bool, double or None: JSON has no more
