"""Python values as JSON text, for publishers in Python."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec


def json_text(value: Any) -> bytes:
    """Return a value as JSON text in one line.

    Args:
        value: a dict, a list, a dataclass, a Struct of msgspec, a model of pydantic, a text, a
            number (of numpy, too), None, or what msgspec writes as a text, such as a datetime (of
            pandas, too: NaT is null). A Decimal is a number with all of its digits.

    Raises:
        ValueError: JSON cannot represent it: a number is not finite, or a text not valid Unicode.
        TypeError: a value of another type.
    """
    text = _encode(value)
    # The encoder writes NaN and infinity of a float as null, and of a Decimal as words, so only a
    # text with one of these needs the walk.
    if b"null" in text or b"NaN" in text or b"Infinity" in text:
        plain = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_plain)
        _check_finite(plain, "")
    return text


def _plain(value: Any) -> Any:
    """Return a model of pydantic as a dict, and a number or text of numpy as Python's equal one.

    Neither library is needed for it.
    """
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="python")  # its mode for JSON makes strings of Decimals
    # `item()` would also make a number of a numpy time, and an element of an array of one.
    is_number = getattr(getattr(value, "dtype", None), "kind", "") in _KINDS_OF_NUMBERS
    if is_number and getattr(value, "shape", None) == ():
        number = value.item()
        if isinstance(number, bool | int | float):  # of a long double it is none, which is refused
            return number
    if isinstance(value, str):  # of numpy
        return str(value)
    if isinstance(value, datetime):  # of pandas, with nanoseconds; NaT does not equal itself
        return value.isoformat() if value == value else None
    name = type(value).__name__
    raise TypeError(
        f"a message cannot hold a value of type {name}: convert it to a type of Python's own, as "
        "tolist() of numpy does"
    )


_KINDS_OF_NUMBERS = ("b", "i", "u", "f")
_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_plain).encode


def _check_finite(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for name, member in value.items():
            _check_finite(member, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_finite(item, f"{path}/{index}")
    elif isinstance(value, float | Decimal) and not _is_finite(value):
        raise ValueError(f"{path or 'the message'} is {value}, which JSON cannot represent")


def _is_finite(number: float | Decimal) -> bool:
    # As a double, a large Decimal would be infinite.
    return number.is_finite() if isinstance(number, Decimal) else isfinite(number)
