"""Text to tokens, one at a time: `/` divides after an operand, and else begins a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.path import NAME, STEPS_MAX, FieldPath, Step

# Nine digits: no array that fits into a message is longer.
_INDEX = re.compile(r"\[([0-9]{1,9})\]")
_BRACKETED = re.compile(r"\[/([^\]]*)\]")
_JSON_STEP = re.compile(
    r"\.(?P<name>[A-Za-z_@][A-Za-z0-9_@-]*)"
    r"|\[(?P<index>[0-9]{1,9})\]"
    r"|\[(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]",
    re.DOTALL,
)
_QUOTED_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def scan_path(text: str, at: int, position: int) -> tuple[FieldPath, int]:
    """Read the path that begins at `at` with `/`, `[/` or `$`; return it and its end.

    The longest path is taken. `position` is the start of `text` in the text around it.

    Raises:
        FilterInvalid: not a path, or more than 64 steps.
    """
    steps: list[Step] = []
    if text[at] == "$":
        end = _json_steps(text, at + 1, steps)
    elif text[at] == "[":
        end = _bracketed_steps(text, at, position, steps)
    else:
        end = _slash_steps(text, at, position, steps)
    if not steps:
        raise FilterInvalid("a field path names at least one field", position + at)
    # A wildcard names several places, and an index of filters needs one.
    if "*" in steps:
        raise FilterInvalid("a field path names one place", position + at)
    if len(steps) > STEPS_MAX:
        raise FilterInvalid(f"a field path has at most {STEPS_MAX} steps", position + at)
    return FieldPath(tuple(steps)), end


def _slash_steps(text: str, at: int, position: int, steps: list[Step]) -> int:
    while text.startswith("/", at):
        name = NAME.match(text, at + 1)
        if name is None:
            raise FilterInvalid("expected a name after /", position + at)
        steps.append(name.group())
        at = _indexes(text, name.end(), steps)
    return at


def _bracketed_steps(text: str, at: int, position: int, steps: list[Step]) -> int:
    whole = _BRACKETED.match(text, at)
    if whole is None:
        raise FilterInvalid("this [ is not closed", position + at)
    names = whole.group(1).split("/")
    if "" in names:
        raise FilterInvalid("expected a name after /", position + at)
    steps.extend(names)
    return _indexes(text, whole.end(), steps)


def _indexes(text: str, at: int, steps: list[Step]) -> int:
    while index := _INDEX.match(text, at):
        steps.append(int(index.group(1)))
        at = index.end()
    return at


def _json_steps(text: str, at: int, steps: list[Step]) -> int:
    while step := _JSON_STEP.match(text, at):
        if step["name"]:
            steps.append(step["name"])
        elif step["index"]:
            steps.append(int(step["index"]))
        else:
            steps.append(_QUOTED_ESCAPE.sub(r"\1", step["quoted"][1:-1]))
        at = step.end()
    return at


NUMBER_LENGTH_MAX = 400
INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1

# The four of JSON, and no others: a filter reads the same in every locale.
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SYMBOL = re.compile(r"==|<>|!=|<=|>=|[=<>+\-*/%(),\[\]]")
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|[0-7]{1,3}|.)", re.DOTALL)
# Those of C.
_NAMED_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "f": 12, "r": 13}
_SYNONYMS = {"==": "=", "<>": "!="}


class Kind(StrEnum):
    """The kinds of tokens."""

    PATH = "path"
    NUMBER = "number"
    STRING = "string"
    NAME = "name"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `value` is a path, the digits, the string, the NAME or the symbol."""

    kind: Kind
    value: FieldPath | str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        """Return True for one of these symbols or words, which are in capitals."""
        return self.kind in (Kind.NAME, Kind.SYMBOL) and self.value in words


def scan(text: str, at: int, position: int, *, operand: bool) -> Token:
    """Return the token at or after `at`; `operand`: a value may begin here.

    Names become capitals. `position` is the start of `text` in the text around it.

    Raises:
        FilterInvalid: no token begins so.
    """
    at = _end(_SPACE, text, at)
    if at == len(text):
        return Token(Kind.END, "", at, at)
    # `/` and `[` mean two things, and only the parser knows which one is due.
    first = text[at]
    if operand and (first in "/$" or text.startswith("[/", at)):
        path, end = scan_path(text, at, position)
        return Token(Kind.PATH, path, at, end)
    if first in "'\"" or (first in "rR" and text[at + 1 : at + 2] in ("'", '"')):
        return _string(text, at, position)
    if number := _NUMBER.match(text, at):
        return _number(text, number, position)
    if name := _NAME.match(text, at):
        return Token(Kind.NAME, name.group().upper(), at, name.end())
    if symbol := _SYMBOL.match(text, at):
        spelling = symbol.group()
        return Token(Kind.SYMBOL, _SYNONYMS.get(spelling, spelling), at, symbol.end())
    raise FilterInvalid("this character means nothing here", position + at)


def number_of(digits: str) -> int | float:
    """Return the number that decimal digits spell: an integer if written as one within 64 bits.

    At most 400 characters; too large a double is infinite.
    """
    if digits.lstrip("+-").isdecimal():
        whole = int(digits)
        return whole if INTEGER_MIN <= whole <= INTEGER_MAX else float(digits)
    return float(digits)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _number(text: str, number: re.Match[str], position: int) -> Token:
    digits, at, end = number.group(), number.start(), number.end()
    # `5x` would else be two tokens, and its error would name the second one.
    if text[end : end + 1].isalnum() or text[end : end + 1] in ("_", "."):
        raise FilterInvalid("a number ends in something else", position + end)
    # Infinity is hardly meant where digits are written.
    if len(digits) > NUMBER_LENGTH_MAX or float(digits) == float("inf"):
        raise FilterInvalid("a number is too large", position + at)
    return Token(Kind.NUMBER, digits, at, end)


def _string(text: str, at: int, position: int) -> Token:
    raw = text[at] in "rR"
    whole = _STRING.match(text, at + raw)
    if whole is None:
        raise FilterInvalid("this string is not closed", position + at)
    inner = whole.group(1) if whole.group(1) is not None else whole.group(2)
    value = inner if raw or "\\" not in inner else _unescaped(inner, position, whole.start() + 1)
    return Token(Kind.STRING, value, at, whole.end())


def _unescaped(inner: str, position: int, at: int) -> str:
    # Bytes, as an escape names a byte: several of them may be one character.
    pieces: list[bytes] = []
    done = 0
    for escape in _ESCAPE.finditer(inner):
        pieces.append(inner[done : escape.start()].encode())
        pieces.append(_escaped(escape.group()[1:], position + at + escape.start()))
        done = escape.end()
    pieces.append(inner[done:].encode())
    try:
        return b"".join(pieces).decode()
    except UnicodeDecodeError:
        raise FilterInvalid("the string is not valid UTF-8", position + at - 1) from None


def _escaped(code: str, position: int) -> bytes:
    if code == "x":
        raise FilterInvalid("expected two hexadecimal digits after \\x", position)
    if code[0] == "x":
        return bytes([int(code[1:], 16)])
    if code[0] in "01234567":
        if int(code, 8) > 0o377:
            raise FilterInvalid("an octal escape is at most \\377", position)
        return bytes([int(code, 8)])
    if code in _NAMED_ESCAPES:
        return bytes([_NAMED_ESCAPES[code]])
    return code.encode()
