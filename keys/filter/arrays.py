"""Arrays as values: flat; questions about any element are asked of sets, made once."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from keys.filter.numbers import Number, Scalar, number_in, text


class Opaque:
    """An object of a message, which has no value but is there (rule 92)."""


OBJECT = Opaque()
_NUMBERS = frozenset({int, float, bool})
_SCALARS = _NUMBERS | {str}


class Bag(frozenset):  # type: ignore[type-arg]  # of numbers or of strings, never mixed
    """Different elements of one kind, which can be ordered."""

    @cached_property
    def ordered(self) -> list:  # type: ignore[type-arg]  # as above
        """From the least to the greatest."""
        return sorted(self)

    def between(self, low: Scalar, high: Scalar) -> bool:
        """Whether an element is neither below nor above."""
        at = bisect_left(self.ordered, low)
        return at < len(self.ordered) and bool(self.ordered[at] <= high)


class Array:
    """The elements of an array; sets of them are made once, when they are first asked for."""

    def __init__(self, items: list[Scalar | Opaque | None]) -> None:
        self.items = items
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
        return [item for item in self.items if item is not None and not isinstance(item, Opaque)]

    @cached_property
    def numbers(self) -> Bag:
        """The numbers and bools."""
        if str not in self._kinds:
            return Bag(self.scalars)
        return Bag(item for item in self.scalars if not isinstance(item, str))

    @cached_property
    def strings(self) -> Bag:
        """The strings."""
        if self._kinds == {str}:
            return Bag(self.scalars)
        return Bag(item for item in self.scalars if isinstance(item, str))

    @cached_property
    def spelt(self) -> Bag:
        """The numbers that strings are."""
        return Bag(item for item in self._read if item is not None)

    @cached_property
    def countable(self) -> Bag:
        """All that are numbers, as such or as strings."""
        return Bag(self.numbers | self.spelt)

    @cached_property
    def worded(self) -> bool:
        """Whether a string is no number."""
        return None in self._read

    @cached_property
    def _read(self) -> set[Number | None]:
        """What the strings are as numbers."""
        return set(map(number_in, self.strings))

    @cached_property
    def texts(self) -> Bag:
        """The texts of all scalars."""
        if self.of_strings:
            return self.strings
        if self._kinds == {int}:
            return Bag(map(str, self.numbers))
        return Bag(map(text, self.scalars))

    @cached_property
    def reversed_texts(self) -> Bag:
        """The texts of all scalars from their ends."""
        return Bag(item[::-1] for item in self.texts)

    @cached_property
    def weight(self) -> int:
        """Bytes of all different texts, and 64 for each element (rule 104)."""
        return sum(map(len, self.texts)) + 64 * len(self.scalars)

    def outweighs(self, bytes_max: int) -> bool:
        """Whether its weight is more, looking at the texts only if that matters."""
        return 64 * len(self.scalars) > bytes_max or self.weight > bytes_max

    @property
    def of_numbers(self) -> bool:
        """Whether every element is a number or bool."""
        return self._kinds <= _NUMBERS

    @property
    def of_strings(self) -> bool:
        """Whether every element is a string."""
        return self._kinds == {str}


def some_pair(operator: str, left: Array, right: Array) -> bool:
    """Whether an element of the one compares so with an element of the other (rules 90, 96)."""
    return (
        _exists(operator, left.numbers, right.numbers)
        or _exists(operator, left.strings, right.strings)
        or (bool(right.strings) and _exists(operator, left.numbers, right.spelt))
        or (bool(left.strings) and _exists(operator, left.spelt, right.numbers))
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
            return bool(left.ordered[0] < right.ordered[-1])
        case "<=":
            return bool(left.ordered[0] <= right.ordered[-1])
        case ">":
            return bool(left.ordered[-1] > right.ordered[0])
    return bool(left.ordered[-1] >= right.ordered[0])
