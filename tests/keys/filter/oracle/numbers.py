"""Functions of numbers and arrays: rule filter-15."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.keys.filter.oracle.logic import calculated, holds
from tests.keys.filter.oracle.reading import INTEGER_MAX, INTEGER_MIN
from tests.keys.filter.oracle.values import count, double, elements, first, fitting, number

EXACT = decimal.Context(prec=2_000)
EARTH_M = 6_371_008.8
PLACES_MAX = 30


def _abs(x: Any) -> Any:
    found = number(x)
    return None if found is None else abs(found)


def _sign(x: Any) -> Any:
    found = number(x)
    if found is None or math.isnan(found):
        return found
    return (found > 0) - (found < 0)


def _rounded(mode: str, x: Any, *n: Any) -> Any:
    found, places = number(x), count(n[0]) if n else 0
    if found is None or places is None:
        return None
    if math.isnan(found) or math.isinf(found):
        return found
    places = max(-PLACES_MAX, min(PLACES_MAX, places))
    if isinstance(found, int) and places >= 0:
        return found
    rounded = Decimal(repr(found)).quantize(Decimal(1).scaleb(-places), mode, EXACT)
    if places > 0:
        return float(rounded)
    whole = int(rounded)
    return whole if INTEGER_MIN <= whole <= INTEGER_MAX else float(rounded)


def _real(function: Callable[..., float]) -> Callable[..., float | None]:
    """A function of doubles as in C99; Python raises where C gives NaN."""

    def real(*arguments: Any) -> float | None:
        doubles = [double(argument) for argument in arguments]
        if None in doubles:
            return None
        if any(math.isnan(d) for d in doubles if d is not None) and function is not _power:
            return math.nan
        try:
            return float(function(*doubles))
        except ValueError:
            return math.nan

    return real


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: -math.inf if x == 0 else function(x)


def _exp(x: float) -> float:
    return math.inf if x > 710 else math.exp(x)


def _cosh(x: float) -> float:
    return math.inf if abs(x) > 711 else math.cosh(x)


def _sinh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > 711 else math.sinh(x)


def _cot(x: float) -> float:
    return math.inf if x == 0 else 1 / math.tan(x)


def _power(x: float, y: float) -> float:
    if x == 0 and y < 0:
        return math.inf
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


def _chosen(operator: str) -> Callable[..., Any]:
    """GREATEST and LEAST (rule filter-15)."""

    def choose(*values: Any) -> Any:
        chosen = None
        for value in map(first, values):
            if value is None:
                continue
            if chosen is None or holds(operator, value, chosen):
                chosen = value
        return chosen

    return choose


def _width_bucket(*arguments: Any) -> Any:
    x, low, high = (double(argument) for argument in arguments[:3])
    n = count(arguments[3])
    if x is None or low is None or high is None or n is None or n < 1:
        return None
    if low == high or any(map(math.isnan, (x, low, high))) or math.isinf(low) or math.isinf(high):
        return None
    if low < high:
        if x < low:
            return 0
        if x >= high:
            return fitting(n + 1)
        return fitting(min(math.floor((x - low) / (high - low) * n) + 1, n))
    if x > low:
        return 0
    if x <= high:
        return fitting(n + 1)
    return fitting(min(math.floor((low - x) / (low - high) * n) + 1, n))


def _array_count(x: Any) -> int:
    return len(x) if isinstance(x, list) else int(x is not None)


def _array_sum(x: Any) -> Any:
    total = None
    for element in elements(x):
        total = number(element) if total is None else calculated("+", total, element)
    return total


def _coalesce(*values: Any) -> Any:
    return next((value for value in map(first, values) if value is not None), None)


def _geo_distance(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """Rule filter-15; in which order it rounds is left open, and here as the evaluator has it."""
    north1, north2, along = math.radians(lat1), math.radians(lat2), math.radians(lon2 - lon1)
    cosines = math.cos(north1) * math.cos(north2)
    h = math.sin((north2 - north1) / 2) ** 2 + cosines * math.sin(along / 2) ** 2
    return 2 * EARTH_M * math.asin(math.sqrt(min(1.0, h)))


REAL: dict[str, Callable[..., float]] = {
    "EXP": _exp,
    "LN": _logarithm(math.log),
    "LOG2": _logarithm(math.log2),
    "LOG10": _logarithm(math.log10),
    "POWER": _power,
    "SQRT": math.sqrt,
    "RADIANS": math.radians,
    "DEGREES": math.degrees,
    "SIN": math.sin,
    "COS": math.cos,
    "TAN": math.tan,
    "COT": _cot,
    "ASIN": math.asin,
    "ACOS": math.acos,
    "ATAN": math.atan,
    "ATAN2": math.atan2,
    "SINH": _sinh,
    "COSH": _cosh,
    "TANH": math.tanh,
    "GEO_DISTANCE": _geo_distance,
}
NUMBERS: dict[str, Callable[..., Any]] = {
    **{name: _real(function) for name, function in REAL.items()},
    "ABS": _abs,
    "SIGN": _sign,
    "CEILING": lambda x: _rounded(decimal.ROUND_CEILING, x),
    "FLOOR": lambda x: _rounded(decimal.ROUND_FLOOR, x),
    "ROUND": lambda x, *n: _rounded(decimal.ROUND_HALF_UP, x, *n),
    "GREATEST": _chosen(">"),
    "LEAST": _chosen("<"),
    "WIDTH_BUCKET": _width_bucket,
    "ARRAY_COUNT": _array_count,
    "ARRAY_MAX": lambda x: _chosen(">")(*elements(x)),
    "ARRAY_MIN": lambda x: _chosen("<")(*elements(x)),
    "ARRAY_SUM": _array_sum,
    "COALESCE": _coalesce,
    "TRUE_VALUE": lambda: True,
    "FALSE_VALUE": lambda: False,
    "NAN_VALUE": lambda: math.nan,
}
