"""Slow and plain readers, written from the standards alone, to compare the product's with.

JSON: RFC 8259, strict: UTF-8, no lone surrogate, 64 levels. Merge patches: RFC 7396. Event streams:
WHATWG HTML, 9.2.6.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import isinf
from typing import Any, Final

DEPTH_MAX: Final = 64
_SPACE: Final = " \t\n\r"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPES: Final = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")


class Refused(ValueError):
    """The text is not what the standard has."""


class Number(str):
    """The text of a number; no number that this program could calculate with."""

    __slots__ = ()


def strict_json(text: bytes) -> Any:
    """The value of a text: dict, list, str, True, False, None, or the text of a number.

    Raises:
        Refused: it is no strict JSON.
    """
    try:
        reader = _Json(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Refused("UTF-8") from error
    value = reader.value(0)
    reader.space()
    if reader.at != len(reader.text):
        raise Refused("behind the end")
    return value


class _Json:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> None:
        if not self.text.startswith(expected, self.at):
            raise Refused(expected)
        self.at += len(expected)

    def value(self, depth: int) -> Any:
        self.space()
        character = self.next()
        if character in ("{", "[") and character:
            if depth == DEPTH_MAX:
                raise Refused("depth")
            return self.object(depth + 1) if character == "{" else self.array(depth + 1)
        if character == '"':
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise Refused("a value")
        if isinf(float(found.group())):
            raise Refused("a number beyond a double")
        self.at = found.end()
        return Number(found.group())

    def object(self, depth: int) -> dict[str, Any]:
        self.take("{")
        members: dict[str, Any] = {}
        self.space()
        if self.next() == "}":
            self.at += 1
            return members
        while True:
            self.space()
            name = self.string()
            self.space()
            self.take(":")
            members[name] = self.value(depth)  # the last of two counts
            self.space()
            if self.next() == "}":
                self.at += 1
                return members
            self.take(",")

    def array(self, depth: int) -> list[Any]:
        self.take("[")
        items: list[Any] = []
        self.space()
        if self.next() == "]":
            self.at += 1
            return items
        while True:
            items.append(self.value(depth))
            self.space()
            if self.next() == "]":
                self.at += 1
                return items
            self.take(",")

    def string(self) -> str:
        self.take('"')
        units: list[str] = []
        while True:
            character = self.next()
            self.at += 1
            if character == '"':
                break
            if character == "" or character < " ":
                raise Refused("a string")
            units.append(self.escape() if character == "\\" else character)
        # Two escapes may be one character; half of a pair is none.
        joined = "".join(units).encode("utf-16", "surrogatepass")
        try:
            return joined.decode("utf-16")
        except UnicodeDecodeError as error:
            raise Refused("a lone surrogate") from error

    def escape(self) -> str:
        character = self.next()
        self.at += 1
        if character == "u":
            found = _HEX.match(self.text, self.at)
            if found is None:
                raise Refused("an escape")
            self.at += 4
            return chr(int(found.group(), 16))
        if character not in _ESCAPES:
            raise Refused("an escape")
        return _ESCAPES[character]


def as_numbers(value: Any) -> Any:
    """The value with its numbers as numbers, so that 1, 1.0 and 1e0 are equal."""
    if isinstance(value, Number):
        try:
            return "number", Decimal(value)
        except ArithmeticError:  # the exponent is too long for a decimal, but zero is zero
            mantissa = str(value).lower().partition("e")[0]
            return "number", str(value).lower() if mantissa.strip("-0.") else Decimal(0)
    if isinstance(value, dict):
        return {name: as_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_numbers(each) for each in value]
    if isinstance(value, bool):
        return "flag", value  # or True were 1
    return value


def patched(target: Any, patch: Any) -> Any:
    """`MergePatch` of RFC 7396, word for word."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = patched(made.get(name), value)
    return made


def events(stream: bytes) -> list[tuple[str, str, str]]:
    """Name, data and last id of each event of a stream, as a browser dispatches them."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _ = re.split("\r\n|\r|\n", text)
    found: list[tuple[str, str, str]] = []
    name = data = buffered_id = last_id = ""
    for line in lines:
        if line == "":
            last_id = buffered_id
            if data != "":
                found.append((name or "message", data.removesuffix("\n"), last_id))
            name = data = ""
            continue
        if line.startswith(":"):
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "data":
                data += value + "\n"
            case "id" if "\0" not in value:
                buffered_id = value
    return found
