"""Comparisons, lists and arithmetic: rules filter-9 to filter-13, filter-5 and filter-14."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tests.keys.filter.oracle.values import elements, first, fitting, number, numeral, text

HOLDS = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _sign(left: Any, right: Any) -> int:
    return -1 if left < right else 1 if left > right else 0


def _exact(found: float) -> Any:
    """A number without rounding; infinities compare rightly with fractions as they are."""
    return found if math.isinf(found) else Fraction(found)


def order_of(left: Any, right: Any) -> int | None:
    """Below 0, 0 or above 0 for two values that are not NULL; None with NaN (rule filter-11)."""
    if isinstance(left, bytes) and isinstance(right, bytes):
        return _sign(left, right)
    left_number = numeral(left) if isinstance(left, bytes) else number(left)
    right_number = numeral(right) if isinstance(right, bytes) else number(right)
    for found in (left_number, right_number):
        if found is not None and math.isnan(found):
            return None
    if left_number is None or right_number is None:  # just one of them is a word
        return 1 if left_number is None else -1
    return _sign(_exact(left_number), _exact(right_number))


def holds(operator: str, left: Any, right: Any) -> bool:
    """One comparison of two values that are not NULL."""
    order = order_of(left, right)
    return operator == "!=" if order is None else HOLDS[operator](order)


def compared(operator: str, left: Any, right: Any) -> bool | None:
    """A comparison of values: any pair of elements (rules filter-9 and filter-11)."""
    lefts, rights = elements(left), elements(right)
    if not lefts or not rights:
        return None
    return any(holds(operator, one, other) for one in lefts for other in rights)


def is_in(value: Any, items: list[Any]) -> bool | None:
    """Rule filter-12."""
    answers = [compared("=", value, item) for item in items]
    if not elements(value):
        return None
    if True in answers:
        return True
    return None if None in answers else False


def is_between(value: Any, low: Any, high: Any) -> bool | None:
    """Rule filter-12."""
    low, high = first(low), first(high)
    if low is None or high is None or not elements(value):
        return None
    if isinstance(low, bytes) != isinstance(high, bytes):
        low = numeral(low) if isinstance(low, bytes) else low
        high = numeral(high) if isinstance(high, bytes) else high
        if low is None or high is None:
            return None
    return any(holds(">=", e, low) and holds("<=", e, high) for e in elements(value))


def is_affixed(kind: str, value: Any, items: list[Any]) -> bool | None:
    """BEGINS WITH and ENDS WITH (rule filter-13)."""
    if not elements(value):
        return None
    affixes = [text(item) for item in items]
    for element in elements(value):
        whole = text(element) or b""
        for affix in affixes:
            if affix is None:
                continue
            if whole.startswith(affix) if kind == "begins" else whole.endswith(affix):
                return True
    return None if None in affixes else False


def _cut_quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def calculated(operator: str, left: Any, right: Any) -> int | float | None:
    """Arithmetic (rules filter-5 and filter-14)."""
    a, b = number(left), number(right)
    if a is None or b is None:
        return None
    if operator in "/%" and b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return fitting(_of_integers(operator, a, b))
    return _of_doubles(operator, float(a), float(b))


def _of_integers(operator: str, a: int, b: int) -> int:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return _cut_quotient(a, b)
    return a - b * _cut_quotient(a, b)


def _of_doubles(operator: str, a: float, b: float) -> float:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
    return math.nan if math.isinf(a) else math.fmod(a, b)
