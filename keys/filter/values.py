"""Values of a message as filters see them: scalars, and flat arrays that answer as sets."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from tidegate.keys.filter.tokens import INTEGER_MAX, INTEGER_MIN, NUMBER_LENGTH_MAX, number_of

_SHORT = 18
_EXACT_DIGITS = 15

Number = int | float
Scalar = bool | int | float | str

_SPELLING = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NUMBER = re.compile(_SPELLING)
_NUMBERS = re.compile(f"(?:({_SPELLING})|[^\xff]*+)\xff")
_EXACT: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def narrow(text: str) -> str:
    """Return a text with one character for each of its UTF-8 bytes (rule filter-6).

    Lengths and positions in it are those of the published bytes.
    """
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def widened(text: str) -> str:
    """Undo `narrow`; a character that was cut is U+FFFD."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "replace")


def number_in(text: str) -> Number | None:
    """Return the number that a string is, None for a word (rule filter-5)."""
    # Most numbers in strings are short integers, which need no regular expression.
    if len(text) <= _SHORT and text.isdecimal():
        return int(text)
    # Reading a longer text would take more time than a filter may.
    if len(text) > NUMBER_LENGTH_MAX or _NUMBER.fullmatch(text) is None:
        return None
    return number_of(text)


def magnitudes_in(texts: Sequence[str]) -> list[Number | None]:
    """Return what `number_in` does for many texts, much faster and without the types.

    No text is empty or holds the byte FF.
    """
    longest = max(map(len, texts), default=0)
    if longest <= _SHORT and "".join(texts).isdecimal():
        return list(map(int, texts))
    # Up to fifteen digits a double holds any integer exactly; beyond, the type matters.
    if longest > _EXACT_DIGITS:
        return list(map(number_in, texts))
    spellings = _NUMBERS.findall("\xff".join((*texts, "")))
    return [float(spelling) if spelling else None for spelling in spellings]


def number(value: Scalar) -> Number:
    """Return the number of a scalar: a bool is 1 or 0, a word NaN (rule filter-5)."""
    if isinstance(value, str):
        found = number_in(value)
        return math.nan if found is None else found
    return int(value) if isinstance(value, bool) else value


def text(value: Scalar) -> str:
    """Return the text of a scalar (rule filter-6)."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(int(value))
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def truth(value: Scalar) -> bool:
    """Return a scalar as a condition (rule filter-10)."""
    if isinstance(value, bool):
        return value
    found = number(value)
    return found != 0 and not math.isnan(found)


def within(whole: int) -> Number:
    """Return an integer, as the nearest double if it is outside 64 bits."""
    if INTEGER_MIN <= whole <= INTEGER_MAX:
        return whole
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def calculated(sign: str, left: Number, right: Number) -> Number | None:
    """Return `left sign right`; None for a division by zero (rule filter-14)."""
    if sign in "/%" and right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        if sign in _EXACT:
            return within(_EXACT[sign](left, right))
        # C99 divides towards zero, Python downwards.
        whole, rest = divmod(abs(left), abs(right))
        if sign == "%":
            return rest if left >= 0 else -rest
        return within(whole if (left < 0) == (right < 0) else -whole)
    return _with_doubles(sign, float(left), float(right))


def _with_doubles(sign: str, left: float, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
    return math.nan if math.isinf(left) else math.fmod(left, right)


# Not a byte of UTF-8, so no text of a message holds it.
SEPARATOR = "\xff"
READINGS_MAX = 3_000


class TooManyStringsError(Exception):
    """More strings than may be read as numbers (rule filter-4); the caller answers NULL."""


class Opaque:
    """An object of a message: present, but without a value (rule filter-7)."""


OBJECT = Opaque()
_NUMBER_KINDS = frozenset({int, float, bool})
_WHOLE = frozenset({int, bool})
_SCALARS = _NUMBER_KINDS | {str}
_INFINITIES = {math.inf, -math.inf}


class Bag(frozenset):  # type: ignore[type-arg]  # of numbers or of strings, never mixed
    """Distinct elements of one kind, which can be ordered."""

    @cached_property
    def least(self) -> Scalar:
        """The smallest element; there must be one."""
        return min(self)  # type: ignore[no-any-return]  # an element

    @cached_property
    def greatest(self) -> Scalar:
        """The largest element; there must be one."""
        return max(self)  # type: ignore[no-any-return]  # an element

    def between(self, low: Scalar, high: Scalar) -> bool:
        """Return True if an element is neither below nor above."""
        return any(low <= element <= high for element in self)


class Array:
    """The elements of an array; sets of them are made once, at their first use.

    Every property reads each element a fixed number of times. Those that read strings as numbers
    raise `TooManyStringsError` for more than `readings_max` distinct ones.
    """

    def __init__(
        self, items: list[Scalar | Opaque | None], readings_max: int = READINGS_MAX
    ) -> None:
        self.items = items
        self._readings_max = readings_max
        # Known once, so that properties of elements of one type need not check each of them.
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
        return [item for item in self.items if item is not None and item is not OBJECT]  # type: ignore[misc]  # mypy does not narrow by `is not OBJECT`

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
    def spelled(self) -> Bag:
        """The numbers that the strings spell."""
        return Bag(set(self._read) - {None})

    @cached_property
    def worded(self) -> bool:
        """True if a string is not a number."""
        return None in self._read

    @cached_property
    def readings(self) -> dict[str, Number | None]:
        """Each string as a number, None for a word."""
        return dict(zip(self._readable, self._read, strict=True))

    @cached_property
    def addends(self) -> dict[str, Number]:
        """Each string as a number, NaN for a word (rule filter-5)."""
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
        """The distinct strings in order."""
        strings = self.items if self.of_strings else [i for i in self.items if type(i) is str]
        # In order of their memory: a set would visit the strings at random.
        return list(dict.fromkeys(strings))  # type: ignore[arg-type]  # all are strings

    @cached_property
    def joined(self) -> str:
        """The distinct texts of all scalars, with `SEPARATOR` between them and at both ends."""
        return SEPARATOR + SEPARATOR.join(self._texts) + SEPARATOR

    @cached_property
    def _texts(self) -> Collection[str]:
        """The texts of scalars: 1, 1.0 and "1" are one number but two texts."""
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
        """True if every element is a number or bool."""
        return self._kinds <= _NUMBER_KINDS

    @property
    def of_integers(self) -> bool:
        """True if every element is an integer."""
        return self._kinds == {int}

    @property
    def of_strings(self) -> bool:
        """True if every element is a string."""
        return self._kinds == {str}


def some_pair(operator: str, left: Array, right: Array) -> bool:
    """Return True if an element of one compares so with one of the other (filter-9, filter-11)."""
    return (
        _exists(operator, left.numbers, right.numbers)
        or _exists(operator, left.strings, right.strings)
        or (bool(left.numbers and right.strings) and _exists(operator, left.numbers, right.spelled))
        or (bool(left.strings and right.numbers) and _exists(operator, left.spelled, right.numbers))
        or (operator in ("<", "<=", "!=") and bool(left.numbers) and right.worded)
        or (operator in (">", ">=", "!=") and bool(right.numbers) and left.worded)
    )


def _exists(operator: str, left: Bag, right: Bag) -> bool:
    if not left or not right:
        return False
    match operator:
        case "=":
            # The smaller set is looked up in the larger one, whatever their sizes.
            return not left.isdisjoint(right)
        case "!=":
            # Two distinct elements differ from any one value, so nothing has to be compared.
            return len(left) > 1 or len(right) > 1 or left != right
        case "<":
            return bool(left.least < right.greatest)  # type: ignore[operator]  # both sets are of one kind
        case "<=":
            return bool(left.least <= right.greatest)  # type: ignore[operator]  # both sets are of one kind
        case ">":
            return bool(left.greatest > right.least)  # type: ignore[operator]  # both sets are of one kind
    return bool(left.greatest >= right.least)  # type: ignore[operator]  # both sets are of one kind


# Strings are converted joined by this: one call for all is much faster than one for each.
_JOINT = "\x00"


def opened(items: list[Any], elements_max: int) -> list[Any] | None:
    """Flatten the elements: arrays among them are opened at every depth (rule filter-8).

    None if there are more than `elements_max`, arrays in it and their elements included.
    """
    # Counted before a level is flattened: a bomb of nested arrays is never built.
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
    # No recursion: the depth of a message is not the depth of this call.
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
    """Convert opened elements to values; elements of kinds that need no conversion are kept."""
    kinds = set(map(type, items))
    if dict in kinds:
        items = [OBJECT if type(item) is dict else item for item in items]
    if int in kinds:
        integers = items if len(kinds) == 1 else [item for item in items if type(item) is int]
        # Two calls for all, as hardly any array has an integer beyond 64 bits.
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
    """Encode strings, empty ones as None (rules filter-6, filter-7); else return the list."""
    joined = _JOINT.join(strings)
    found: list[str | None] = strings  # type: ignore[assignment]  # nothing is put into it
    if not joined.isascii():
        # A string may hold the joint itself; then each is converted separately.
        together = joined.count(_JOINT) == len(strings) - 1
        found = narrow(joined).split(_JOINT) if together else list(map(narrow, strings))  # type: ignore[assignment]  # nothing is put into it
    return [each or None for each in found] if "" in found else found


def scalar_of(inner: Any) -> Scalar | Opaque | None:
    """Convert decoded JSON other than an array to a value."""
    if isinstance(inner, str):
        return narrow(inner) or None
    if isinstance(inner, dict):
        return OBJECT
    if isinstance(inner, int) and not isinstance(inner, bool):
        return within(inner)
    return inner  # type: ignore[no-any-return]  # a bool, double or None: JSON has no more
