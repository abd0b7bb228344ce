"""Random messages as JSON text, with the fields that the random filters ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

NAMES = ("a", "b", "c", "d", "e", "l", "m", "o", "u", "p", "q", "@t", "a-1", "a b", "é")
WORDS: tuple[str, ...] = (
    "",
    "0",
    "007",
    " 7",
    "1e3",
    "abc",
    "ABC",
    "Abcabc",
    "x",
    "zürich",
    "a.b",
    "-5",
    "+5",
    "7.0",
)
WORDS += ("1.", ".5", "1e999", "NaN", "Infinity", "18446744073709551616", "-9223372036854775809")
WORDS += ("9007199254740993", "2.0", "2.000", " pad\t", "2024-02-29", "2024-02-29T12:30:05", "b\nb")
WORDS += ("null", "true", "日本", "-0", "0.1", "1 2", "'", '"', "\\", "aXbXc", "ß", "é", "É")
WORDS += (" x ", "\t\n\v\f\r 7\r\f\v\n\t ", "  ")
NUMBERS: tuple[str, ...] = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "6",
    "7",
    "10",
    "100",
    "-0",
    "0.0",
    "-0.0",
    "0.1",
    "0.10",
)
NUMBERS += ("2.5", "-2.5", "1e3", "1E+2", "7.0", "1e-7", "1e400", "-1e400", "1e-400", "3.14159")
NUMBERS += ("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e16", "1.5e300")
NUMBERS += ("-9223372036854775809", "18446744073709551615", "18446744073709551616", "1709209805")
NUMBERS += ("9007199254740992", "9007199254740993", "9007199254740992.0", "12345678901234567890123")
SPACES = ("", "", "", "", "", "", " ", "  ", "\n", "\t ")
DEPTH_MAX = 4


def random_message(random: Random) -> bytes:
    """The JSON text of a message; mostly an object of NAMES."""
    kind = random.random()
    if kind < 0.04:
        return _space(random, _value(random, 0)).encode()
    if kind < 0.06:
        return _array(random, DEPTH_MAX, lambda: _object(random, 2, 0.5)).encode()
    return _space(random, _object(random, DEPTH_MAX, random.choice((0.5, 0.8, 0.95)))).encode()


def _space(random: Random, text: str) -> str:
    return random.choice(SPACES) + text + random.choice(SPACES)


def _string(random: Random, string: str) -> str:
    if random.random() < 0.1:
        return '"' + "".join(f"\\u{ord(character):04x}" for character in string) + '"'
    return json.dumps(string, ensure_ascii=random.random() < 0.5)


def _object(random: Random, depth: int, presence: float) -> str:
    names = [name for name in NAMES if random.random() < presence]
    if names and random.random() < 0.1:
        names.append(random.choice(names))
    random.shuffle(names)
    members = (
        _string(random, name) + _space(random, ":") + _member(random, name, depth) for name in names
    )
    return "{" + ",".join(_space(random, member) for member in members) + "}"


def _member(random: Random, name: str, depth: int) -> str:
    """`l` and `m` are mostly arrays, `o` mostly an object, the others mostly scalars."""
    likely = random.random() < 0.8
    if name in "lm" and likely:
        return _array(random, depth, lambda: _value(random, depth - 1))
    if name == "o" and likely and depth > 0:
        return _object(random, depth - 2, 0.6)
    return _value(random, depth if random.random() < 0.15 else 0)


def _array(random: Random, depth: int, element: Callable[[], str]) -> str:
    count = random.choice((0, 1, 1, 2, 2, 3, 5))
    return "[" + ",".join(_space(random, element()) for _ in range(count)) + "]"


def _value(random: Random, depth: int) -> str:
    kind = random.random()
    if depth > 0 and kind < 0.25:
        return _array(random, depth, lambda: _value(random, depth - 1))
    if depth > 0 and kind < 0.4:
        return _object(random, depth - 2, 0.3)
    if kind < 0.5:
        return random.choice(("null", "true", "false", '""'))
    if kind < 0.75:
        return random.choice(NUMBERS)
    if kind < 0.752:
        return json.dumps("ab7" * random.choice((2_731, 2_730, 3_500)))
    return _string(random, random.choice(WORDS))
