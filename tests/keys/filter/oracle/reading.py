"""Filter text to tokens, character by character, straight from rules filter-1 to filter-3."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
NAME = re.compile(r"[\w@$][\w@$.:-]*")  # what a step of `/a/b` is made of (rule key-4)
MEMBER = re.compile(r"[A-Za-z_@][A-Za-z0-9_@-]*")  # what may follow the dot of `$.a`
NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SYMBOLS = ("==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "+", "-", "*", "/", "%")
ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "f": 12, "r": 13}
STEPS_MAX, NUMBER_LENGTH_MAX = 64, 400
ONE_SPELLING = {"==": "=", "<>": "!="}


class Refused(Exception):
    """The oracle takes no such text."""


class Token(NamedTuple):
    """One word, symbol, string, number or path; `start` and `end` are characters of the text."""

    kind: str
    value: Any
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """All tokens of a text."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
            continue
        kind, value, end = _token(text, at, found)
        found.append(Token(kind, value, at, end))
        at = end
    return found


def _token(text: str, at: int, before: list[Token]) -> tuple[str, Any, int]:
    character = text[at]
    if character in "'\"":
        return "string", *_string(text, at)
    if character in "rR" and text[at + 1 : at + 2] in ("'", '"'):
        return "string", *_raw_string(text, at + 1)
    if character == "$":
        return "path", *_jsonpath(text, at)
    if character == "[":
        return "path", *_bracketed_path(text, at)
    if character == "/" and _value_may_begin(before):
        return "path", *_path(text, at)
    if number := NUMBER.match(text, at):
        if re.compile(r"[\w.]").match(text, number.end()):
            raise Refused("a number and more")
        return "number", number.group(), number.end()
    if word := WORD.match(text, at):
        return "word", word.group().upper(), word.end()
    for symbol in SYMBOLS:
        if text.startswith(symbol, at):
            return "symbol", ONE_SPELLING.get(symbol, symbol), at + len(symbol)
    raise Refused(f"no token at {at}")


def _value_may_begin(before: list[Token]) -> bool:
    """Whether what stands before is no value: then a `/` begins a path (rule filter-2)."""
    if not before:
        return True
    last = before[-1]
    if last.kind == "word":
        return last.value not in ("TRUE", "FALSE", "NULL", "NAN")
    return last.kind == "symbol" and last.value != ")"


def number(sign: str, text: str) -> int | float:
    """The value of a number with its sign (rule filter-3)."""
    if len(text) > NUMBER_LENGTH_MAX:
        raise Refused("a number too long")
    if text.isdigit():
        integer = int(sign + text)
        if INTEGER_MIN <= integer <= INTEGER_MAX:
            return integer
    double = float(sign + text)
    if double in (float("inf"), float("-inf")):
        raise Refused("a number beyond doubles")
    return double


def _string(text: str, at: int) -> tuple[bytes, int]:
    quote, at = text[at], at + 1
    found = b""
    while at < len(text):
        if text[at] == quote:
            return _utf8(found), at + 1
        if text[at] == "\\":
            piece, at = _escape(text, at + 1)
        else:
            piece, at = _encoded(text[at]), at + 1
        found += piece
    raise Refused("a string without end")


def _escape(text: str, at: int) -> tuple[bytes, int]:
    """The bytes of what follows a backslash, and where it ends."""
    if octal := re.compile("[0-7]{1,3}").match(text, at):
        if int(octal.group(), 8) > 255:
            raise Refused("more than a byte")
        return bytes([int(octal.group(), 8)]), octal.end()
    character = text[at : at + 1]
    if character == "x":
        digits = text[at + 1 : at + 3]
        if not re.fullmatch("[0-9A-Fa-f]{2}", digits):
            raise Refused("two hexadecimal digits")
        return bytes([int(digits, 16)]), at + 3
    if character in ESCAPES:
        return bytes([ESCAPES[character]]), at + 1
    return _encoded(character), at + 1


def _raw_string(text: str, at: int) -> tuple[bytes, int]:
    quote = text[at]
    found = re.compile(rf"{quote}((?:\\.|[^\\{quote}])*){quote}", re.DOTALL).match(text, at)
    if not found:
        raise Refused("a string without end")
    return _encoded(found.group(1)), found.end()


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused("a lone surrogate") from error


def _utf8(string: bytes) -> bytes:
    try:
        string.decode()
    except UnicodeDecodeError as error:
        raise Refused("a string that is not UTF-8") from error
    return string


def _steps(steps: list[str | int]) -> tuple[str | int, ...]:
    if not 1 <= len(steps) <= STEPS_MAX:
        raise Refused("1 to 64 steps")
    return tuple(steps)


def _indexes(text: str, at: int) -> tuple[list[int], int]:
    """Any number of `[n]` that stand here."""
    indexes: list[int] = []
    while found := re.compile(r"\[([0-9]+)\]").match(text, at):
        indexes.append(int(found.group(1)))
        at = found.end()
    return indexes, at


def _path(text: str, at: int) -> tuple[tuple[str | int, ...], int]:
    steps: list[str | int] = []
    while text[at : at + 1] == "/":
        name = NAME.match(text, at + 1)
        if not name:
            raise Refused("a name after /")
        indexes, at = _indexes(text, name.end())
        steps += [name.group(), *indexes]
    return _steps(steps), at


def _bracketed_path(text: str, at: int) -> tuple[tuple[str | int, ...], int]:
    found = re.compile(r"\[((?:/[^/\]]+)+)\]").match(text, at)
    if not found:
        raise Refused("[/names]")
    indexes, end = _indexes(text, found.end())
    return _steps([*found.group(1)[1:].split("/"), *indexes]), end


def _jsonpath(text: str, at: int) -> tuple[tuple[str | int, ...], int]:
    steps: list[str | int] = []
    quoted = re.compile(r"""\[(?:'([^'\\]*)'|"([^"\\]*)")\]""")
    at += 1
    while True:
        indexes, end = _indexes(text, at)
        if indexes:
            steps += indexes
        elif name := quoted.match(text, at):
            steps.append(name.group(1) or name.group(2) or "")
            end = name.end()
        elif text[at : at + 1] == "." and (name := MEMBER.match(text, at + 1)):
            steps.append(name.group())
            end = name.end()
        else:
            return _steps(steps), at
        at = end
