"""JSON text: checked as strict RFC 8259, taken apart, compared, and numbers kept exact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import isinf
from typing import Any

import msgspec

from tidegate.keys.errors import JsonInvalid

DEPTH_MAX = 64
NULL = b"null"
EMPTY_OBJECT = b"{}"

_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_BYTE = re.compile(r"\(byte (\d+)\)")
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"?|-?[0-9][-+.0-9eE]*', re.DOTALL)

# A number beyond a double has an exponent of three digits, or two hundred digits before a shorter
# exponent. Every message is searched for both, so the patterns begin with a letter, which `re`
# finds several times as fast as a class. What follows the digits tells them from those of a UUID.
_EXPONENT = rb"[+0-9][0-9]{2,}(?<![eE]\+[0-9]{2})(?:[\s,\]}]|\Z)"
_large_exponent = re.compile(rb"e" + _EXPONENT).search
_large_upper_exponent = re.compile(rb"E" + _EXPONENT).search
DIGITS_RUN = 200
SAMPLED_EACH = 20
_ALL_DIGITS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_SAMPLED_RUN = b"0" * (DIGITS_RUN // SAMPLED_EACH)
_long_run = re.compile(rb"(?<![0-9])[0-9]{%d}" % DIGITS_RUN).search

# Spaces, so that tokens stay apart and positions of errors stay those of the sender.
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def check_json(text: bytes) -> None:
    """Check one JSON value: UTF-8, syntax, no lone surrogate, at most 64 levels, numbers in range.

    A number beyond the range of doubles has no value for most readers of JSON; RFC 8259, section 6,
    allows such a limit.

    Raises:
        JsonInvalid: with the position of the error, if that is known.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise JsonInvalid("not valid UTF-8", error.start) from None
    # Two counts are much faster than the check, and few messages have so many brackets.
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX:
        _check_depth(text)
    try:
        _check_syntax(text)
    except msgspec.DecodeError as error:
        raise _invalid(text, str(error)) from None
    check_range(text)


def check_range(text: bytes) -> None:
    """Check that each number of a JSON text is in the range of doubles.

    Raises:
        JsonInvalid: with the position of a number that is not.
    """
    if not may_exceed_double(text):
        return
    for token in _STRING_OR_NUMBER.finditer(text):
        number = token.group()
        if number[:1] != b'"' and isinf(float(number)):
            raise JsonInvalid("a number beyond a double", token.start())


def may_exceed_double(text: bytes) -> bool:
    """Return False if no number in JSON texts, one or many, is beyond a double.

    True only means that each number has to be checked: it may be due to the text of a string.
    """
    return has_large_exponent(text) or has_long_number(text)


def has_large_exponent(text: bytes) -> bool:
    """Return True if a number in JSON texts, or what looks like one, has an exponent above 99."""
    # Most texts have no capital E, which `in` finds out fastest.
    if b"E" in text and _large_upper_exponent(text):
        return True
    return _large_exponent(text) is not None


def has_long_number(text: bytes | memoryview) -> bool:
    """Return True if there are 200 digits in a row in JSON texts."""
    # A run of 200 digits includes ten successive samples.
    sample = bytes(text[::SAMPLED_EACH]).translate(_ALL_DIGITS_ZERO)
    return _SAMPLED_RUN in sample and _long_run(text) is not None


def decoded(text: bytes) -> Any:
    """Decode checked JSON text.

    Raises:
        JsonInvalid: a number beyond a double, in a text stored before these were refused.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        check_range(text)
        raise


def one_line(text: bytes) -> bytes:
    """Replace line breaks in checked JSON text by spaces; inside strings there are none."""
    # Most messages have no line break, and are returned without a copy.
    stripped = text.strip()
    if b"\n" in stripped or b"\r" in stripped:
        return stripped.translate(_LINE_BREAKS)
    return stripped


def _invalid(text: bytes, reason: str) -> JsonInvalid:
    found = _BYTE.search(reason)
    reason = _BYTE.sub("", reason).removeprefix("JSON is malformed: ").strip()
    # msgspec says the same of half a surrogate pair and of a text that ends too early.
    if "truncated" in reason and b"\\ud" in text.lower():
        reason = "lone surrogate, or the text breaks off"
    position = int(found[1]) if found else len(text)
    if reason == "trailing characters":
        position -= 1  # msgspec has read the first of them, and names the byte after it
    return JsonInvalid(f"not JSON: {reason}", position)


def _check_depth(text: bytes) -> None:
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        bracket = token.group()
        if bracket in (b"[", b"{"):
            depth += 1
            if depth > DEPTH_MAX:
                raise JsonInvalid(f"deeper than {DEPTH_MAX} levels", token.start())
        elif bracket in (b"]", b"}"):
            depth -= 1


# Numbers stay exact until the last step. A text longer than this is rounded to a double first:
# exact arithmetic on it would take too long for a message.
EXACT_LENGTH_MAX = 400
PLAIN_DIGITS_MAX = 21  # as JavaScript's Number.toString, so browsers print the same
PLAIN_ZEROS_MAX = 6
EXPONENT_DIGITS_MAX = 18

Exact = int | Fraction

_SHORT_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}").fullmatch
_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]*))?").fullmatch


def is_number(text: bytes) -> bool:
    """Return True if a JSON value, without space around it, is a number."""
    return text[:1] in b"-0123456789"


def canonical_number(text: bytes) -> str:
    """Return a number's canonical text: 1, 1.0 and 1e0 are `1`. Exact at any length."""
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
    """Return a number that compares exactly with others, whatever its size."""
    if _SHORT_INTEGER(text):
        return int(text)
    try:
        return Decimal(text.decode())
    except InvalidOperation:  # its exponent has more than 18 digits: infinite, or next to nothing
        return Decimal(float(text))


def exact(text: bytes) -> Exact | None:
    """Return a number to calculate with; None if it is beyond the range of doubles.

    One of more than 400 characters is rounded to a double, and one too small for a double is 0.
    """
    if _SHORT_INTEGER(text):
        return int(text)
    near = float(text)
    if near in (float("inf"), float("-inf")):
        return None
    if near == 0 or len(text) > EXACT_LENGTH_MAX:
        return Fraction(near)
    return Fraction(Decimal(text.decode()))


def number_text(number: Exact) -> bytes:
    """Return the JSON text of a result: integers exactly, others as the nearest double.

    One beyond a double is null, as a publisher could not send it either.
    """
    try:
        near = float(number)
    except OverflowError:
        return NULL
    if number.denominator == 1:
        return str(number.numerator).encode()
    if near.is_integer():
        return str(int(near)).encode()
    return canonical_number(repr(near).encode()).encode()


def _spread(digits: str, point: int) -> str:
    """Place the decimal point after `point` digits, as JavaScript writes numbers."""
    if len(digits) <= point <= PLAIN_DIGITS_MAX:
        return digits + "0" * (point - len(digits))
    if 0 < point <= PLAIN_DIGITS_MAX:
        return f"{digits[:point]}.{digits[point:]}"
    if -PLAIN_ZEROS_MAX < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{point - 1}"


Members = dict[str, msgspec.Raw]

_members = msgspec.json.Decoder(Members).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_string = msgspec.json.Decoder(str).decode


def members(text: bytes) -> Members | None:
    """Return the members of an object, in order, each as JSON text; None for other values."""
    return _members(text) if text.lstrip()[:1] == b"{" else None


def items(text: bytes) -> list[msgspec.Raw] | None:
    """Return the items of an array, each as JSON text; None for other values."""
    return _items(text) if text.lstrip()[:1] == b"[" else None


def string(text: bytes) -> str | None:
    """Decode a JSON string; None for other values."""
    return _string(text) if text.lstrip()[:1] == b'"' else None


def object_text(parts: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the JSON text of an object with these members, their values byte for byte."""
    return msgspec.json.encode(parts)


def with_value_at(fields: Members, target: tuple[str, ...], text: bytes | None) -> Members:
    """Return the members with a value set, or removed, at a path; objects on it are created."""
    name, rest = target[0], target[1:]
    if rest:
        before = fields.get(name)
        inner = None if before is None else members(bytes(before))
        if inner is None and text is None:
            return fields
        text = object_text(with_value_at(inner or {}, rest, text))
    if text is None:
        return {other: value for other, value in fields.items() if other != name}
    return {**fields, name: msgspec.Raw(text)}


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if one path is the other, or begins with it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def canonical_value(text: bytes) -> str:
    """Return the same text for equal values: numbers and strings canonical, names sorted."""
    text = text.strip()
    if is_number(text):
        return canonical_number(text)
    if (inner := members(text)) is not None:
        named = sorted((msgspec.json.encode(name).decode(), bytes(inner[name])) for name in inner)
        return "{" + ",".join(f"{name}:{canonical_value(value)}" for name, value in named) + "}"
    if (parts := items(text)) is not None:
        return "[" + ",".join(canonical_value(bytes(part)) for part in parts) + "]"
    if b"\\" in text:
        return msgspec.json.encode(string(text)).decode()
    return text.decode()


def are_equal(one: bytes, other: bytes) -> bool:
    """Return True if two JSON texts have equal values: 1 and 1.0 do, 1, "1" and true do not."""
    return one == other or canonical_value(one) == canonical_value(other)  # bytes are fastest
