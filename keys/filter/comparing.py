"""Predicates over values: comparisons, IN, BETWEEN, BEGINS and ENDS WITH; None is NULL."""

from __future__ import annotations

import math

from tidegate.keys.filter.fields import Value
from tidegate.keys.filter.values import (
    SEPARATOR,
    Array,
    Bag,
    Opaque,
    Scalar,
    TooManyStringsError,
    number_in,
    some_pair,
    text,
)


def null(value: Value) -> bool:
    """Return True if a value counts as NULL in comparisons (rules filter-9 and filter-7)."""
    if isinstance(value, Array):
        return not value.scalars
    return value is None or isinstance(value, Opaque)


def compare(operator: str, left: Value, right: Value) -> bool | None:
    """Return `left operator right` for any elements of arrays (rules filter-9 and filter-11)."""
    if null(left) or null(right):
        return None
    if isinstance(left, Array) or isinstance(right, Array):
        return _compare_arrays(operator, left, right)
    return compare_scalars(operator, left, right)  # type: ignore[arg-type]  # no object: not null


def _compare_arrays(operator: str, left: Value, right: Value) -> bool | None:
    if _is_nan(left) or _is_nan(right):
        return operator == "!="
    try:
        return some_pair(operator, _array(left), _array(right))
    except TooManyStringsError:
        return None


def compare_scalars(operator: str, left: Scalar, right: Scalar) -> bool:
    """Return `left operator right` of two scalars (rule filter-11)."""
    if isinstance(left, str) != isinstance(right, str):
        if _is_nan(left) or _is_nan(right):
            return operator == "!="
        if isinstance(left, str):
            found = number_in(left)
            if found is None:
                return operator in (">", ">=", "!=")
            left = found
        else:
            found = number_in(right)  # type: ignore[arg-type]  # the other one is the string
            if found is None:
                return operator in ("<", "<=", "!=")
            right = found
    match operator:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right  # type: ignore[operator]  # both are strings or both numbers
        case "<=":
            return left <= right  # type: ignore[operator]  # as above
        case ">":
            return left > right  # type: ignore[operator]  # as above
    return left >= right  # type: ignore[operator]  # as above


def between(value: Value, low: Scalar | None, high: Scalar | None) -> bool | None:
    """Return True if an element is from `low` to `high` (rule filter-12)."""
    if null(value) or low is None or high is None:
        return None
    if isinstance(low, str) != isinstance(high, str):
        low = number_in(low) if isinstance(low, str) else low
        high = number_in(high) if isinstance(high, str) else high
        if low is None or high is None:
            return None
    if not isinstance(value, Array):
        scalar: Scalar = value  # type: ignore[assignment]  # no object: not null
        return compare_scalars(">=", scalar, low) and compare_scalars("<=", scalar, high)
    if isinstance(low, str) and isinstance(high, str):
        return value.strings.between(low, high) or _numbers_between(value.numbers, low, high)
    if _is_nan(low) or _is_nan(high):
        return False
    try:
        return value.numbers.between(low, high) or value.spelt.between(low, high)
    except TooManyStringsError:
        return None


def _numbers_between(numbers: Bag, low: str, high: str) -> bool:
    lowest, highest = number_in(low), number_in(high)
    if lowest is None or not numbers:
        return False
    return numbers.between(lowest, math.inf if highest is None else highest)


def has_affix(end: str, value: Value, items: list[Scalar | None]) -> bool | None:
    """Return True if an element's text begins, or ends, with an item's (rule filter-13)."""
    if null(value):
        return None
    affixes = [text(item) for item in items if item is not None]
    if isinstance(value, Array):
        found = any(affix in value.joined for affix in _marked(end, affixes))
    else:
        whole = text(value)  # type: ignore[arg-type]  # no object: not null
        fits = whole.startswith if end == "BEGINS" else whole.endswith
        found = fits(tuple(affixes))
    return found or (None if None in items else False)


def _marked(end: str, affixes: list[str]) -> list[str]:
    """Return the affixes as they appear at one end of a text among joined texts."""
    possible = [affix for affix in affixes if SEPARATOR not in affix]
    if end == "ENDS":
        return [affix + SEPARATOR for affix in possible]
    return [SEPARATOR + affix for affix in possible]


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _array(value: Value) -> Array:
    return value if isinstance(value, Array) else Array([value])
