"""A program's messages as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from tidegate.keys.python_values import json_text

TEXT = bytes | bytearray | memoryview


def lines_of(messages: Any) -> Iterator[bytes]:
    """Yield the line of one message, or of each of several; see `line_of`.

    A list, and any other iterable that is not a message by itself, has several.

    Raises:
        TypeError: a frame of pandas or polars.
    """
    # A dict would give its keys, a text its characters, and a model of pydantic its fields.
    is_message = isinstance(messages, Mapping | str | TEXT) or hasattr(messages, "model_dump")
    if is_message or is_dataclass(messages) or not isinstance(messages, Iterable):
        messages = [messages]
    elif hasattr(messages, "columns"):  # iterating a frame gives the names of its columns
        raise TypeError(
            "a frame is not a message: publish its rows, with None in place of NaN, by "
            "frame.astype(object).where(frame.notna(), None).to_dict('records') of pandas or "
            "frame.fill_nan(None).to_dicts() of polars"
        )
    return map(line_of, messages)


def line_of(message: Any) -> bytes:
    """Return a message as one line of JSON.

    Args:
        message: JSON text as bytes, or a value as of `json_text`.

    Raises:
        ValueError: the text has a line break, which would make two messages of it; a number is not
            finite, which JSON cannot represent.
        TypeError: a value of another type.
    """
    if not isinstance(message, TEXT):
        return json_text(message)
    text = bytes(message)
    if b"\n" in text or b"\r" in text:
        raise ValueError("a message is one line of JSON")
    return text
