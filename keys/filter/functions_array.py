"""Functions that look at all elements of an array, or at all of their arguments."""

from __future__ import annotations

from collections.abc import Iterable

from keys.filter.arrays import Array, Opaque
from keys.filter.comparing import compare_scalars
from keys.filter.fields import Value, scalars
from keys.filter.functions_text import TEXT_BYTES_MAX
from keys.filter.numbers import Number, Scalar, calculated, number, text


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
    return best(">", scalars(value))


def least_element(value: Value) -> Scalar | None:
    """ARRAY_MIN."""
    if isinstance(value, Array) and (value.of_numbers or value.of_strings):
        return min(value.scalars)
    return best("<", scalars(value))


def total(value: Value) -> Number | None:
    """ARRAY_SUM: from left to right."""
    found: Number | None = None
    for scalar in scalars(value):
        added = number(scalar)
        if type(added) is float and type(found) is float:
            found += added
        else:
            found = added if found is None else calculated("+", found, added)
    return found


def to_string(value: Value, separator: str, null: str | None) -> str | None:
    """ARRAY_TO_STRING: the texts of the elements, NULLs as `null`, or passed over without it."""
    items = _items(value)
    if not items or len(items) > TEXT_BYTES_MAX or len(separator) > TEXT_BYTES_MAX:
        return None
    texts: list[str] = []
    for item in items:
        if item is not None and not isinstance(item, Opaque):
            texts.append(text(item))
        elif null is not None:
            texts.append(null)
    length = sum(map(len, texts)) + len(separator) * (len(texts) - 1)
    return separator.join(texts) if length <= TEXT_BYTES_MAX else None


def _items(value: Value) -> list[Scalar | Opaque | None]:
    if isinstance(value, Array):
        return value.items
    return [] if value is None else [value]
