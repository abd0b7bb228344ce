"""One spelling for each key value, whatever way its publisher wrote it."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

from keys.errors import JsonInvalid, KeyInvalid
from keys.jsontext import check_json
from keys.value import canonical_value

NUMBER_LENGTH_MAX = 400
INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1

_SHORT_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}").fullmatch
_SOME_DIGIT = re.compile(rb"[-0.]*[1-9]").match
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


def canonical_scalar(text: bytes) -> str:
    """The one spelling of a scalar's JSON text: `1.0` and `1e0` become `1`.

    Strings keep their type (`"1"` is not `1`), escapes are resolved where JSON allows.

    Raises:
        KeyInvalid: null, an object or array, or a number beyond 64 bits.
    """
    first = text[:1]
    if first == b'"':
        if b"\\" in text:
            return msgspec.json.encode(_text(text)).decode()
        return text.decode()
    if first in b"-0123456789":
        return text.decode() if _SHORT_INTEGER(text) else _number(text)
    if first in b"tf":
        return text.decode()
    kind = {b"n": "null", b"{": "an object", b"[": "an array"}[first]
    raise KeyInvalid(f"a key field is a string, number or boolean, not {kind}")


def canonical_key(text: bytes) -> str:
    """A whole key as users write it, `["IBM", 7.0]`, in its one spelling `["IBM",7]`.

    Raises:
        KeyInvalid: not a JSON array of scalars (null is allowed, as in conflation keys).
    """
    try:
        fields = _items(text)
        return join_key([canonical_or_null(bytes(field)) for field in fields])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KeyInvalid('a key is written as a JSON array such as ["IBM",7]') from error


def group_key(text: bytes) -> str:
    """The same for a group, or a conflation key: any value is a field of it.

    Raises:
        KeyInvalid: not a JSON array.
    """
    try:
        check_json(text)
        return join_key([canonical_or_own(bytes(field)) for field in _items(text)])
    except (msgspec.DecodeError, JsonInvalid) as error:
        raise KeyInvalid('a key is written as a JSON array such as ["IBM",7]') from error


def canonical_or_own(text: bytes) -> str:
    """As `canonical_scalar`; what is no such scalar has one spelling of its own.

    So unlike values stay apart, and alike ones are together.
    """
    try:
        return canonical_or_null(text)
    except KeyInvalid:
        return canonical_value(text)


def canonical_or_null(text: bytes) -> str:
    """As `canonical_scalar`, but null stays null."""
    return "null" if text == b"null" else canonical_scalar(text)


def join_key(fields: list[str]) -> str:
    """Canonical fields put together: the JSON array without spaces."""
    return "[" + ",".join(fields) + "]"


def _number(text: bytes) -> str:
    """Integers exactly; another number is a double whose spelling is this very number.

    Raises:
        KeyInvalid: 64 bits do not hold it, so that another number would be the same key.
    """
    beyond = KeyInvalid("a number in a key must fit into 64 bits")
    near = float(text)
    if len(text) > NUMBER_LENGTH_MAX or near in (float("inf"), float("-inf")):
        raise beyond
    if near == 0:
        if _SOME_DIGIT(text):
            raise beyond
        return "0"
    exact = Decimal(text.decode())
    if exact == int(exact):
        if not INTEGER_MIN <= exact <= INTEGER_MAX:
            raise beyond
        return str(int(exact))
    if exact != Decimal(repr(near)):
        raise beyond
    return repr(near)
