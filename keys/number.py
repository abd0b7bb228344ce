"""Numbers of JSON text, exactly: no digit is lost before the last step."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

EXACT_LENGTH_MAX = 400
PLAIN_DIGITS_MAX = 21
PLAIN_ZEROS_MAX = 6
EXPONENT_DIGITS_MAX = 18

Exact = int | Fraction

_SHORT_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}").fullmatch
_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]*))?").fullmatch


def is_number(text: bytes) -> bool:
    """Whether a JSON value, without space around it, is a number."""
    return text[:1] in b"-0123456789"


def canonical_number(text: bytes) -> str:
    """The one spelling of a number's JSON text: 1, 1.0 and 1e0 are `1`. Exact at any length."""
    if _SHORT_INTEGER(text):
        return text.decode()
    parts = _PARTS(text.decode())
    assert parts is not None, "a JSON number"
    minus, whole, fraction, sign, power = parts[1], parts[2], parts[3] or "", parts[4], parts[5]
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    if power and len(power) > EXPONENT_DIGITS_MAX:
        return text.decode().lower()
    exponent = int(f"{sign}{power or 0}") if power is not None else 0
    return minus + _spread(digits.rstrip("0"), len(digits) - len(fraction) + exponent)


def comparable(text: bytes) -> int | Decimal:
    """A number's JSON text as a value that compares exactly with others, whatever its size."""
    if _SHORT_INTEGER(text):
        return int(text)
    try:
        return Decimal(text.decode())
    except InvalidOperation:  # its exponent has more than 18 digits: infinite, or next to nothing
        return Decimal(float(text))


def exact(text: bytes) -> Exact | None:
    """A number's JSON text to calculate with; None if it is beyond what a double can hold.

    One of more than 400 characters is the double next to it, one next to nothing is 0.
    """
    if _SHORT_INTEGER(text):
        return int(text)
    near = float(text)
    if near in (float("inf"), float("-inf")):
        return None
    if near == 0 or len(text) > EXACT_LENGTH_MAX:
        return Fraction(near)
    return Fraction(Decimal(text.decode()))


def spelled(number: Exact) -> bytes:
    """JSON text of a result: whole numbers exactly, others as the double next to them."""
    if number.denominator == 1:
        return str(number.numerator).encode()
    try:
        near = float(number)
    except OverflowError:
        return str(round(number)).encode()
    if near.is_integer():
        return str(int(near)).encode()
    return canonical_number(repr(near).encode()).encode()


def _spread(digits: str, point: int) -> str:
    """Digits with the decimal point after `point` of them, as JavaScript writes numbers."""
    if len(digits) <= point <= PLAIN_DIGITS_MAX:
        return digits + "0" * (point - len(digits))
    if 0 < point <= PLAIN_DIGITS_MAX:
        return f"{digits[:point]}.{digits[point:]}"
    if -PLAIN_ZEROS_MAX < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{point - 1}"
