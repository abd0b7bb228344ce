"""A program's messages as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from math import isfinite
from typing import Any

import msgspec

TEXT = bytes | bytearray | memoryview


def lines_of(messages: Any) -> Iterator[bytes]:
    """Yield the line of one message, or of each of several; see `line_of`.

    A list, and any other iterable that is not a message by itself, has several.
    """
    # A dict would give its keys, a text its characters, and a model of pydantic its fields.
    is_message = isinstance(messages, Mapping | str | TEXT) or hasattr(messages, "model_dump")
    if is_message or is_dataclass(messages) or not isinstance(messages, Iterable):
        messages = [messages]
    return map(line_of, messages)


def line_of(message: Any) -> bytes:
    """Return a message as one line of JSON.

    Args:
        message: JSON text as bytes, or a value: a dict, a list, a dataclass, a Struct of msgspec, a
            model of pydantic, a text, a number, None.

    Raises:
        ValueError: the text has a line break, which would make two messages of it; a number is not
            finite, which JSON cannot say.
        TypeError: a value of another type.
    """
    if isinstance(message, TEXT):
        text = bytes(message)
        if b"\n" in text or b"\r" in text:
            raise ValueError("a message is one line of JSON")
        return text
    line = msgspec.json.encode(message, enc_hook=_model)
    # The encoder writes NaN and infinity as null, so only a line with null needs the walk.
    if b"null" in line:
        _check_finite(msgspec.to_builtins(message, enc_hook=_model), "")
    return line


def _model(value: Any) -> Any:
    """Return a model of pydantic as plain values; pydantic itself is not needed for it."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a message cannot hold a value of type {type(value).__name__}")
    return dump(mode="python")


def _check_finite(value: Any, path: str) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{path or 'the message'} is {value}, which JSON cannot say")
    if isinstance(value, dict):
        for name, member in value.items():
            _check_finite(member, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_finite(item, f"{path}/{index}")
