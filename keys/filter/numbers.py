"""Scalars: what of them is a number, what is their text, how integers and doubles meet."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

from keys.filter.tokens import INTEGER_MAX, INTEGER_MIN, NUMBER_LENGTH_MAX, number_of

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
    """A text with one character for each of its UTF-8 bytes (rule 93)."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def widened(text: str) -> str:
    """What was narrowed; U+FFFD where a character was cut."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "replace")


def number_in(text: str) -> Number | None:
    """The number that a string is, None for a word (rule 85)."""
    if len(text) <= _SHORT and text.isdecimal():
        return int(text)
    if len(text) > NUMBER_LENGTH_MAX or _NUMBER.fullmatch(text) is None:
        return None
    return number_of(text)


def magnitudes_in(texts: Sequence[str]) -> list[Number | None]:
    """What `number_in` says of texts, but not of which type, much faster for many.

    No text is empty or holds the byte FF.
    """
    longest = max(map(len, texts), default=0)
    if longest <= _SHORT and "".join(texts).isdecimal():
        return list(map(int, texts))
    if longest > _EXACT_DIGITS:
        return list(map(number_in, texts))
    spellings = _NUMBERS.findall("\xff".join((*texts, "")))
    return [float(spelling) if spelling else None for spelling in spellings]


def number(value: Scalar) -> Number:
    """The number of a scalar: a bool is 1 or 0, a word NaN (rule 101)."""
    if isinstance(value, str):
        found = number_in(value)
        return math.nan if found is None else found
    return int(value) if isinstance(value, bool) else value


def text(value: Scalar) -> str:
    """The text of a scalar (rule 86)."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(int(value))
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def truth(value: Scalar) -> bool:
    """A scalar as a condition (rule 94)."""
    if isinstance(value, bool):
        return value
    found = number(value)
    return found != 0 and not math.isnan(found)


def within(whole: int) -> Number:
    """An integer, as the nearest double if it is outside 64 bits."""
    if INTEGER_MIN <= whole <= INTEGER_MAX:
        return whole
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def calculated(sign: str, left: Number, right: Number) -> Number | None:
    """`left sign right`; None for a division by zero (rule 102)."""
    if sign in "/%" and right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        if sign in _EXACT:
            return within(_EXACT[sign](left, right))
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
