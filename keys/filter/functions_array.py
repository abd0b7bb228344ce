"""Functions that look at all elements of an array, or at all of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import accumulate
from operator import add, gt, lt
from typing import Any

from keys.filter.arrays import OBJECT, Array, Opaque, TooManyStringsError
from keys.filter.comparing import compare_scalars
from keys.filter.fields import Value, scalars
from keys.filter.numbers import Number, Scalar, number, text, within
from keys.filter.tokens import INTEGER_MAX, INTEGER_MIN


def count(value: Value) -> int:
    """ARRAY_COUNT: elements, NULLs too."""
    return len(_items(value))


def best(operator: str, values: Iterable[Scalar | None]) -> Scalar | None:
    """The first value that no later one is `operator` to, from left to right (rule 110)."""
    found: Scalar | None = None
    for value in values:
        if value is not None and (found is None or compare_scalars(operator, value, found)):
            found = value
    return found


def greatest_element(value: Value) -> Scalar | None:
    """ARRAY_MAX."""
    if isinstance(value, Array) and (value.of_numbers or value.of_strings):
        return max(value.scalars)
    return _best_element(gt, ">", value)


def least_element(value: Value) -> Scalar | None:
    """ARRAY_MIN."""
    if isinstance(value, Array) and (value.of_numbers or value.of_strings):
        return min(value.scalars)
    return _best_element(lt, "<", value)


def _best_element(better: Callable[[Any, Any], bool], sign: str, value: Value) -> Scalar | None:
    """As `best`; what each string is as a number is known of all of them at once."""
    if not isinstance(value, Array):
        return best(sign, scalars(value))
    if not value.scalars:
        return None
    try:
        readings, found = value.readings, value.scalars[0]
    except TooManyStringsError:
        return None
    for element in value.scalars:
        left: Scalar | None = element
        right: Scalar | None = found
        if type(element) is str and type(found) is not str:
            left = readings[element]
        elif type(found) is str and type(element) is not str:
            right = readings[found]
        if left is None or right is None:
            wins = (left is None) == (sign == ">")  # a word is greater than every number
        else:
            wins = better(left, right)
        if wins:
            found = element
    return found


def total(value: Value) -> Number | None:
    """ARRAY_SUM: from left to right."""
    if not isinstance(value, Array):
        return next(map(number, scalars(value)), None)
    try:
        return _sum(_addends(value)) if value.scalars else None
    except TooManyStringsError:
        return None


def _addends(value: Array) -> list[Number]:
    """The numbers of all scalars, NaN for words (rule 101)."""
    if value.of_integers:
        return value.scalars  # type: ignore[return-value]  # integers is what they are
    said = value.addends
    return [
        said[item] if isinstance(item, str) else +item  # TRUE becomes 1
        for item in value.scalars
    ]


def _sum(addends: list[Number]) -> Number:
    """Exact as long as all are integers and sums are within 64 bits, in doubles from then on."""
    kinds = list(map(type, addends))
    exact = kinds.index(float) if float in kinds else len(kinds)
    sums = list(accumulate(addends[:exact]))
    if sums and not INTEGER_MIN <= min(sums) <= max(sums) <= INTEGER_MAX:
        exact = 1 + next(at for at, each in enumerate(sums) if type(within(int(each))) is float)
    doubles = map(float, addends[exact:])
    return reduce(add, doubles, within(int(sums[exact - 1])) if exact else next(doubles))


def to_string(value: Value, separator: str, null: str | None, bytes_max: int) -> str | None:
    """ARRAY_TO_STRING: the texts of the elements, NULLs as `null`, or passed over without it."""
    items = [] if value is OBJECT else _items(value)
    if not items or len(items) > bytes_max or len(separator) > bytes_max:
        return None
    texts: list[str] = []
    for item in items:
        if item is not None and not isinstance(item, Opaque):
            texts.append(text(item))
        elif null is not None:
            texts.append(null)
    length = sum(map(len, texts)) + len(separator) * (len(texts) - 1)
    return separator.join(texts) if length <= bytes_max else None


def _items(value: Value) -> list[Scalar | Opaque | None]:
    if isinstance(value, Array):
        return value.items
    return [] if value is None else [value]
