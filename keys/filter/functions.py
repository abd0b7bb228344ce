"""Functions of the language: of arrays and all arguments, of numbers, and of texts.

`NUMBER_FUNCTIONS` and `TEXT_FUNCTIONS` list the last two by name.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from functools import reduce
from itertools import accumulate
from operator import add, gt, lt
from typing import Any

from tidegate.keys.filter.fields import Value, compare_scalars, scalars
from tidegate.keys.filter.tokens import INTEGER_MAX, INTEGER_MIN
from tidegate.keys.filter.values import (
    OBJECT,
    Array,
    Number,
    Opaque,
    Scalar,
    TooManyStringsError,
    number,
    text,
    within,
)


def count(value: Value) -> int:
    """Count the elements, NULLs too: ARRAY_COUNT."""
    return len(_items(value))


def best(operator: str, values: Iterable[Scalar | None]) -> Scalar | None:
    """Return the first value that no later one is `operator` to (rule filter-15)."""
    found: Scalar | None = None
    for value in values:
        if value is not None and (found is None or compare_scalars(operator, value, found)):
            found = value
    return found


def greatest_element(value: Value) -> Scalar | None:
    """Return the greatest element: ARRAY_MAX."""
    # Among values of one kind Python's own order is that of the rule, and much faster.
    if isinstance(value, Array) and (value.of_numbers or value.of_strings):
        return max(value.scalars)
    return _best_element(gt, ">", value)


def least_element(value: Value) -> Scalar | None:
    """Return the least element: ARRAY_MIN."""
    if isinstance(value, Array) and (value.of_numbers or value.of_strings):
        return min(value.scalars)
    return _best_element(lt, "<", value)


def _best_element(better: Callable[[Any, Any], bool], sign: str, value: Value) -> Scalar | None:
    """Return what `best` does; strings are read as numbers all at once."""
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
    """Sum the elements from left to right: ARRAY_SUM."""
    if not isinstance(value, Array):
        return next(map(number, scalars(value)), None)
    try:
        return _sum(_addends(value)) if value.scalars else None
    except TooManyStringsError:
        return None


def _addends(value: Array) -> list[Number]:
    """Return the numbers of all scalars, NaN for words (rule filter-5)."""
    if value.of_integers:
        return value.scalars  # type: ignore[return-value]  # integers is what they are
    said = value.addends
    return [
        said[item] if isinstance(item, str) else +item  # TRUE becomes 1
        for item in value.scalars
    ]


def _sum(addends: list[Number]) -> Number:
    """Add exactly while all are integers and sums fit 64 bits, in doubles from then on."""
    # From left to right, as a loop in doubles would: the result must not depend on a shortcut.
    kinds = list(map(type, addends))
    exact = kinds.index(float) if float in kinds else len(kinds)
    sums = list(accumulate(addends[:exact]))
    if sums and not INTEGER_MIN <= min(sums) <= max(sums) <= INTEGER_MAX:
        exact = 1 + next(at for at, each in enumerate(sums) if type(within(int(each))) is float)
    doubles = map(float, addends[exact:])
    return reduce(add, doubles, within(int(sums[exact - 1])) if exact else next(doubles))


def to_string(value: Value, separator: str, null: str | None, bytes_max: int) -> str | None:
    """Join the elements' texts: ARRAY_TO_STRING; NULLs become `null`, or are left out."""
    items = [] if value is OBJECT else _items(value)
    if not items or len(items) > bytes_max or len(separator) > bytes_max:
        return None
    texts: list[str] = []
    for item in items:
        if item is not None and not isinstance(item, Opaque):
            texts.append(text(item))
        elif null is not None:
            texts.append(null)
    # Measured before it is joined: the answer may be much longer than the message.
    length = sum(map(len, texts)) + len(separator) * (len(texts) - 1)
    return separator.join(texts) if length <= bytes_max else None


def _items(value: Value) -> list[Scalar | Opaque | None]:
    if isinstance(value, Array):
        return value.items
    return [] if value is None else [value]


# Functions of numbers: exact for integers, C99's answers for doubles, never an exception.


# The mean radius of the IUGG.
EARTH_RADIUS_M = 6_371_008.8
# A double has at most 309 digits before the point, and 30 after it are kept.
_DIGITS = Context(prec=800)


def absolute(x: Number) -> Number:
    """Return the absolute value: ABS."""
    return abs(x)


def sign(x: Number) -> Number:
    """Return -1, 0 or 1, NaN for NaN: SIGN."""
    return x if math.isnan(x) else (x > 0) - (x < 0)


def ceiling(x: Number) -> Number:
    """Round up: CEILING."""
    return _rounded(x, 0, ROUND_CEILING)


def floor(x: Number) -> Number:
    """Round down: FLOOR."""
    return _rounded(x, 0, ROUND_FLOOR)


def round_half_away(x: Number, places: int = 0) -> Number:
    """Round halves away from zero, by a double's shortest digits: ROUND (rule filter-15)."""
    return _rounded(x, min(max(places, -30), 30), ROUND_HALF_UP)


def _rounded(x: Number, places: int, rounding: str) -> Number:
    if (isinstance(x, int) and places >= 0) or not math.isfinite(x):
        return x
    unit = Decimal(1).scaleb(-places)
    # The shortest digits: 2.675 is meant as written, and not as the double below it.
    found = Decimal(repr(x)).quantize(unit, rounding, _DIGITS)
    return float(found) if places > 0 else within(int(found))


def c99(function: Callable[..., float]) -> Callable[..., float]:
    """Return a function of doubles that answers as C99 does where Python raises."""

    def answered(*arguments: Number) -> float:
        try:
            return function(*map(float, arguments))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return answered


def _log(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: -math.inf if x == 0 else function(x)


def _cot(x: float) -> float:
    return math.inf if x == 0 else 1 / math.tan(x)


def _sinh(x: float) -> float:
    return math.copysign(abs(c99(math.sinh)(abs(x))), x)


def _power(x: float, y: float) -> float:
    # Python raises here; C99 has an infinity.
    if x == 0 and y < 0:
        return math.inf
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and math.fmod(y, 2) != 0 else math.inf


def width_bucket(x: Number, low: Number, high: Number, count: int) -> Number | None:
    """Return the number of the bucket: WIDTH_BUCKET (rule filter-15)."""
    value, least, most = float(x), float(low), float(high)
    if count < 1 or least == most or math.isnan(value):
        return None
    if not (math.isfinite(least) and math.isfinite(most)):
        return None
    if least > most:
        value, least, most = -value, -least, -most
    if value < least:
        return 0
    if value >= most:
        return within(count + 1)
    share = (value - least) / (most - least) * count
    return within(min(math.floor(share) + 1 if math.isfinite(share) else 1, count))


def distance_m(
    latitude_1: Number, longitude_1: Number, latitude_2: Number, longitude_2: Number
) -> float:
    """Return the meters between two places on a sphere: GEO_DISTANCE (rule filter-15)."""
    if not all(map(math.isfinite, (latitude_1, longitude_1, latitude_2, longitude_2))):
        return math.nan
    north_1, north_2 = math.radians(latitude_1), math.radians(latitude_2)
    north = math.sin((north_2 - north_1) / 2) ** 2
    # A difference of doubles, as in all functions of C99: that of integers rounds elsewhere.
    east = math.sin(math.radians(float(longitude_2) - float(longitude_1)) / 2) ** 2
    h = north + math.cos(north_1) * math.cos(north_2) * east
    # Rounding may leave [0, 1] by a hair, and `asin` would raise.
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, max(0.0, h))))


# Each takes numbers (n) and counts (c); with a NULL argument the result is NULL.
NUMBER_FUNCTIONS: dict[str, tuple[str, Callable[..., Scalar | None]]] = {
    "ABS": ("n", absolute),
    "SIGN": ("n", sign),
    "CEILING": ("n", ceiling),
    "FLOOR": ("n", floor),
    "ROUND": ("nc", round_half_away),
    "EXP": ("n", c99(math.exp)),
    "LN": ("n", c99(_log(math.log))),
    "LOG2": ("n", c99(_log(math.log2))),
    "LOG10": ("n", c99(_log(math.log10))),
    "POWER": ("nn", c99(_power)),
    "SQRT": ("n", c99(math.sqrt)),
    "RADIANS": ("n", c99(math.radians)),
    "DEGREES": ("n", c99(math.degrees)),
    "SIN": ("n", c99(math.sin)),
    "COS": ("n", c99(math.cos)),
    "TAN": ("n", c99(math.tan)),
    "COT": ("n", c99(_cot)),
    "ASIN": ("n", c99(math.asin)),
    "ACOS": ("n", c99(math.acos)),
    "ATAN": ("n", c99(math.atan)),
    "ATAN2": ("nn", c99(math.atan2)),
    "SINH": ("n", c99(_sinh)),
    "COSH": ("n", c99(math.cosh)),
    "TANH": ("n", c99(math.tanh)),
    "WIDTH_BUCKET": ("nnnc", width_bucket),
    "GEO_DISTANCE": ("nnnn", distance_m),
}


# Functions of texts; a text has one character for each of its bytes (rule filter-6).


_SPACE = " \t\n\v\f\r"


def lower(whole: str) -> str:
    """Return the text with ASCII letters in lower case."""
    # `bytes.lower` changes only ASCII letters; `str.lower` would change other bytes.
    return whole.encode("latin-1").lower().decode("latin-1")


def upper(whole: str) -> str:
    """Return the text with ASCII letters in capitals."""
    return whole.encode("latin-1").upper().decode("latin-1")


def instr(whole: str, part: str) -> int:
    """Return the position of a part from 1, or 0."""
    return whole.find(part) + 1


def instr_i(whole: str, part: str) -> int:
    """Return what `instr` does, whatever the case of ASCII letters."""
    return lower(whole).find(lower(part)) + 1


def streq_i(left: str, right: str) -> bool:
    """Return True if two texts are equal up to the case of ASCII letters."""
    return len(left) == len(right) and lower(left) == lower(right)


def left(whole: str, count: int) -> str:
    """Return the first bytes."""
    return whole[: max(count, 0)]


def right(whole: str, count: int) -> str:
    """Return the last bytes."""
    return whole[max(len(whole) - count, 0) :] if count > 0 else ""


def substr(whole: str, start: int, count: int | None = None) -> str:
    """Return the bytes from a start, which counts from 1, or from the end if negative."""
    begin = max(len(whole) + start, 0) if start < 0 else max(start - 1, 0)
    return whole[begin:] if count is None else whole[begin : begin + max(count, 0)]


def md5(whole: str) -> str:
    """Return the MD5 sum in hexadecimal digits."""
    # Some builds of OpenSSL refuse MD5 unless it is not for security.
    return hashlib.md5(whole.encode("latin-1"), usedforsecurity=False).hexdigest()


def crc32(whole: str) -> int:
    """Return the CRC-32 of zlib."""
    return zlib.crc32(whole.encode("latin-1"))


def char_value(code: int) -> str | None:
    """Return the byte with this code."""
    return chr(code) if 0 <= code <= 255 else None


def concat(values: list[Scalar | None], bytes_max: int) -> str:
    """Join the texts of all values that are not NULL."""
    texts = [text(value) for value in values if value is not None]
    return "".join(texts) if sum(map(len, texts)) <= bytes_max else ""


def replace(values: list[Scalar | None], bytes_max: int) -> str | None:
    """Replace every occurrence of a part; a replacement that is NULL is empty."""
    whole, old, new = values
    if whole is None or old is None:
        return None
    before, old_text, new_text = text(whole), text(old), "" if new is None else text(new)
    if max(len(before), len(old_text), len(new_text)) > bytes_max:
        return None
    # Counted first: one byte replaced by thousands would make a text of megabytes.
    growth = before.count(old_text) * (len(new_text) - len(old_text))
    return before.replace(old_text, new_text) if len(before) + growth <= bytes_max else None


# Each takes texts, to read (t), search (f) or rewrite (s), and counts (c); NULL gives NULL.
TEXT_FUNCTIONS: dict[str, tuple[str, Callable[..., Scalar | None]]] = {
    "INSTR": ("ff", instr),
    "INSTR_I": ("ff", instr_i),
    "STREQUAL_I": ("ff", streq_i),
    "LENGTH": ("t", len),
    "LEFT": ("tc", left),
    "RIGHT": ("tc", right),
    "SUBSTR": ("tcc", substr),
    "TRIM": ("s", lambda whole: whole.strip(_SPACE)),
    "LTRIM": ("s", lambda whole: whole.lstrip(_SPACE)),
    "RTRIM": ("s", lambda whole: whole.rstrip(_SPACE)),
    "REVERSE": ("s", lambda whole: whole[::-1]),
    "UPPER": ("s", upper),
    "LOWER": ("s", lower),
    "MD5": ("s", md5),
    "CRC32": ("s", crc32),
    "CHAR_VALUE": ("c", char_value),
}
