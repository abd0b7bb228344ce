"""Functions of numbers: exact for integers, C99's answers for doubles, never an exception."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

from keys.filter.numbers import Number, Scalar, within

EARTH_RADIUS_M = 6_371_008.8
_DIGITS = Context(prec=800)


def absolute(x: Number) -> Number:
    """ABS."""
    return abs(x)


def sign(x: Number) -> Number:
    """SIGN: -1, 0 or 1; NaN for NaN."""
    return x if math.isnan(x) else (x > 0) - (x < 0)


def ceiling(x: Number) -> Number:
    """CEILING."""
    return _rounded(x, 0, ROUND_CEILING)


def floor(x: Number) -> Number:
    """FLOOR."""
    return _rounded(x, 0, ROUND_FLOOR)


def round_half_away(x: Number, places: int = 0) -> Number:
    """ROUND: halves away from zero, by the shortest digits of a double (rule 108)."""
    return _rounded(x, min(max(places, -30), 30), ROUND_HALF_UP)


def _rounded(x: Number, places: int, rounding: str) -> Number:
    if (isinstance(x, int) and places >= 0) or not math.isfinite(x):
        return x
    unit = Decimal(1).scaleb(-places)
    found = Decimal(repr(x)).quantize(unit, rounding, _DIGITS)
    return float(found) if places > 0 else within(int(found))


def c99(function: Callable[..., float]) -> Callable[..., float]:
    """A function of doubles that answers as C99 does where Python raises."""

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
    if x == 0 and y < 0:
        return math.inf
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and math.fmod(y, 2) != 0 else math.inf


def width_bucket(x: Number, low: Number, high: Number, count: int) -> Number | None:
    """WIDTH_BUCKET (rule 111)."""
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
    """GEO_DISTANCE: metres over a sphere (rule 118)."""
    if not all(map(math.isfinite, (latitude_1, longitude_1, latitude_2, longitude_2))):
        return math.nan
    north_1, north_2 = math.radians(latitude_1), math.radians(latitude_2)
    north = math.sin((north_2 - north_1) / 2) ** 2
    east = math.sin(math.radians(longitude_2 - longitude_1) / 2) ** 2
    h = north + math.cos(north_1) * math.cos(north_2) * east
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, max(0.0, h))))


# Each takes numbers (n) and counts (c); NULL in, NULL out.
FUNCTIONS: dict[str, tuple[str, Callable[..., Scalar | None]]] = {
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
