"""Arrays as values: flat; questions about any element are asked of sets, made once."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property

from keys.filter.numbers import Number, Scalar, magnitudes_in, number, text

# No byte of UTF-8, so that no text of a message holds it.
SEPARATOR = "\xff"
READINGS_MAX = 3_000


class TooManyStringsError(Exception):
    """More strings than may be read as numbers (rule 104); who asked answers NULL."""


class Opaque:
    """An object of a message, which has no value but is there (rule 92)."""


OBJECT = Opaque()
_NUMBERS = frozenset({int, float, bool})
_WHOLE = frozenset({int, bool})
_SCALARS = _NUMBERS | {str}
_INFINITIES = {math.inf, -math.inf}


class Bag(frozenset):  # type: ignore[type-arg]  # of numbers or of strings, never mixed
    """Different elements of one kind, which can be ordered."""

    @cached_property
    def least(self) -> Scalar:
        """The smallest element, of which there must be one."""
        return min(self)  # type: ignore[no-any-return]  # an element

    @cached_property
    def greatest(self) -> Scalar:
        """The largest element, of which there must be one."""
        return max(self)  # type: ignore[no-any-return]  # an element

    def between(self, low: Scalar, high: Scalar) -> bool:
        """Whether an element is neither below nor above."""
        return any(low <= element <= high for element in self)


class Array:
    """The elements of an array; sets of them are made once, when they are first asked for.

    Every question looks at each element a fixed number of times. Those that read strings as
    numbers raise `TooManyStringsError` if there are more than `readings_max` different ones.
    """

    def __init__(
        self, items: list[Scalar | Opaque | None], readings_max: int = READINGS_MAX
    ) -> None:
        self.items = items
        self._readings_max = readings_max
        self._kinds = set(map(type, items))

    @property
    def first(self) -> Scalar | None:
        """Element 0; None for an object."""
        found = self.items[0]
        return None if isinstance(found, Opaque) else found

    @cached_property
    def scalars(self) -> list[Scalar]:
        """The elements that are neither NULL nor objects."""
        if self._kinds <= _SCALARS:
            return self.items  # type: ignore[return-value]  # that is what was asked
        return [item for item in self.items if item is not None and item is not OBJECT]  # type: ignore[misc]  # as above

    @cached_property
    def numbers(self) -> Bag:
        """The numbers and bools."""
        if str not in self._kinds:
            return Bag(self.scalars)
        return Bag([item for item in self.scalars if type(item) is not str])

    @cached_property
    def strings(self) -> Bag:
        """The strings."""
        return Bag(self._in_order)

    @cached_property
    def spelt(self) -> Bag:
        """The numbers that strings are."""
        return Bag(set(self._read) - {None})

    @cached_property
    def worded(self) -> bool:
        """Whether a string is no number."""
        return None in self._read

    @cached_property
    def readings(self) -> dict[str, Number | None]:
        """What each string is worth as a number, None for a word."""
        return dict(zip(self._readable, self._read, strict=True))

    @cached_property
    def addends(self) -> dict[str, Number]:
        """What each string is as a number, NaN for a word (rule 101)."""
        return dict(zip(self._readable, map(number, self._readable), strict=True))

    @cached_property
    def _read(self) -> list[Number | None]:
        return magnitudes_in(self._readable)

    @property
    def _readable(self) -> list[str]:
        if len(self._in_order) > self._readings_max:
            raise TooManyStringsError
        return self._in_order

    @cached_property
    def _in_order(self) -> list[str]:
        """The different strings in order, which is how they lie in memory."""
        strings = self.items if self.of_strings else [i for i in self.items if type(i) is str]
        return list(dict.fromkeys(strings))  # type: ignore[arg-type]  # strings they are

    @cached_property
    def joined(self) -> str:
        """The different texts of all scalars, `SEPARATOR` between them and at both ends."""
        return SEPARATOR + SEPARATOR.join(self._texts) + SEPARATOR

    @cached_property
    def _texts(self) -> Collection[str]:
        """1, 1.0 and "1" are one number but two texts."""
        if self.of_integers:
            return list(map(str, dict.fromkeys(self.items)))
        if float not in self._kinds:
            return self.strings.union(map(str, map(int, self.numbers)))
        whole = {item for item in self.scalars if type(item) in _WHOLE}
        doubles = {item for item in self.scalars if type(item) is float}
        return self.strings.union(
            map(str, map(int, whole)),
            map(repr, doubles - _INFINITIES),
            map(text, doubles & _INFINITIES),
        )

    @property
    def of_numbers(self) -> bool:
        """Whether every element is a number or bool."""
        return self._kinds <= _NUMBERS

    @property
    def of_integers(self) -> bool:
        """Whether every element is an integer."""
        return self._kinds == {int}

    @property
    def of_strings(self) -> bool:
        """Whether every element is a string."""
        return self._kinds == {str}


def some_pair(operator: str, left: Array, right: Array) -> bool:
    """Whether an element of the one compares so with an element of the other (rules 90, 96)."""
    return (
        _exists(operator, left.numbers, right.numbers)
        or _exists(operator, left.strings, right.strings)
        or (bool(left.numbers and right.strings) and _exists(operator, left.numbers, right.spelt))
        or (bool(left.strings and right.numbers) and _exists(operator, left.spelt, right.numbers))
        or (operator in ("<", "<=", "!=") and bool(left.numbers) and right.worded)
        or (operator in (">", ">=", "!=") and bool(right.numbers) and left.worded)
    )


def _exists(operator: str, left: Bag, right: Bag) -> bool:
    if not left or not right:
        return False
    match operator:
        case "=":
            return not left.isdisjoint(right)
        case "!=":
            return len(left) > 1 or len(right) > 1 or left != right
        case "<":
            return bool(left.least < right.greatest)  # type: ignore[operator]  # of one kind
        case "<=":
            return bool(left.least <= right.greatest)  # type: ignore[operator]  # as above
        case ">":
            return bool(left.greatest > right.least)  # type: ignore[operator]  # as above
    return bool(left.greatest >= right.least)  # type: ignore[operator]  # as above
