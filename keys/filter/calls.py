"""Calls of functions, compiled to closures over a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import functions
from tidegate.keys.filter.fields import Reader, Row, Value
from tidegate.keys.filter.patterns import Allowance, replacer, searcher
from tidegate.keys.filter.times import format_time, time_parser
from tidegate.keys.filter.tree import Call, Literal, Node
from tidegate.keys.filter.values import Scalar, narrow, number, text, widened

First = Callable[[Row], Scalar | None]


class ArgumentCompiler(Protocol):
    """The compiler of arguments, which this module must not import: it imports this one."""

    topic: str
    allowed: Allowance

    def value(self, node: Node) -> Reader:
        """Compile `row -> value`."""

    def first(self, node: Node) -> First:
        """Compile `row -> value`, for an array its first element."""

    def condition(self, node: Node) -> Callable[[Row], bool | None]:
        """Compile `row -> TRUE, FALSE or NULL`."""


# Spelled as calls in AMPS; they read nothing, so they are compiled to constants.
_CONSTANTS: dict[str, Scalar] = {"TRUE_VALUE": True, "FALSE_VALUE": False, "NAN_VALUE": math.nan}
_PLAIN = functions.TEXT_FUNCTIONS | functions.NUMBER_FUNCTIONS
_VARIADIC: dict[str, Callable[[list[Scalar | None]], Scalar | None]] = {
    "GREATEST": lambda values: functions.best(">", values),
    "LEAST": lambda values: functions.best("<", values),
    "COALESCE": lambda values: next((value for value in values if value is not None), None),
}
_JOINING: dict[str, Callable[[list[Scalar | None], int], Scalar | None]] = {
    "CONCAT": functions.concat,
    "REPLACE": functions.replace,
}
_ARRAY: dict[str, Callable[[Value], Value]] = {
    "ARRAY_COUNT": functions.count,
    "ARRAY_MAX": functions.greatest_element,
    "ARRAY_MIN": functions.least_element,
    "ARRAY_SUM": functions.total,
}


def compile_call(compiler: ArgumentCompiler, call: Call) -> Reader:
    """Compile `row -> the function's value`; an empty text is NULL (rule filter-7)."""
    name, arguments = call.name, call.arguments
    if name in _CONSTANTS:
        constant = _CONSTANTS[name]
        return lambda row: constant
    if name in _PLAIN:
        kinds, function = _PLAIN[name]
        return _plain(compiler, kinds, function, arguments)
    if name in _JOINING:
        join, bytes_max = _JOINING[name], compiler.allowed.text_bytes
        reads = [compiler.first(argument) for argument in arguments]
        return _variadic(lambda values: join(values, bytes_max), reads)
    if name in _VARIADIC:
        return _variadic(_VARIADIC[name], [compiler.first(argument) for argument in arguments])
    if name in _ARRAY:
        answer, read = _ARRAY[name], compiler.value(arguments[0])
        return lambda row: answer(read(row))
    return _special(compiler, name, arguments)


def _special(compiler: ArgumentCompiler, name: str, arguments: tuple[Node, ...]) -> Reader:
    # An empty text is NULL (rule filter-7).
    topic = compiler.topic or None
    match name:
        case "TOPIC_NAME":
            return lambda row: topic
        case "MESSAGE_SIZE":
            return lambda row: len(row[1])
        case "SOW_KEY":
            return lambda row: narrow(row[2]) or None
        case "IF":
            return _choice(compiler, *arguments)
        case "ARRAY_TO_STRING":
            return _array_to_string(compiler, arguments)
    firsts = [compiler.first(argument) for argument in arguments]
    # Patterns and formats are literals: they are compiled once, not for each message.
    literals = [str(each.value) if isinstance(each, Literal) else "" for each in arguments]
    match name:
        case "REGEXP_MATCH":
            search, whole = searcher(literals[1], compiler.allowed), firsts[0]
            return lambda row: search(whole(row))
        case "REGEXP_REPLACE":
            return _replacing(replacer(literals[1], compiler.allowed), firsts[0], firsts[2])
        case "STRFTIME":
            return _plain(compiler, "n", _writer(literals[0]), arguments[1:])
        case "STRPTIME":
            parse = time_parser(literals[1])
            return _plain(compiler, "s", lambda whole: parse(widened(whole)), arguments[:1])
    raise AssertionError(name)


def _writer(form: str) -> Callable[[float], str]:
    return lambda seconds: narrow(format_time(form, seconds) or "")


def _plain(
    compiler: ArgumentCompiler,
    kinds: str,
    function: Callable[..., Scalar | None],
    arguments: tuple[Node, ...],
) -> Reader:
    """Compile a function of converted arguments, none of which may be NULL (rule filter-15)."""
    pairs = [
        (_converter(kind, compiler.allowed), compiler.first(argument))
        for kind, argument in zip(kinds, arguments, strict=False)
    ]

    def call(row: Row) -> Value:
        # The functions themselves never see NULL.
        converted: list[Scalar] = []
        for convert, read in pairs:
            value = read(row)
            argument = None if value is None else convert(value)
            if argument is None:
                return None
            converted.append(argument)
        found = function(*converted)
        return None if found == "" else found

    return call


def _variadic(
    function: Callable[[list[Scalar | None]], Scalar | None], reads: list[First]
) -> Reader:
    def call(row: Row) -> Value:
        found = function([read(row) for read in reads])
        return None if found == "" else found

    return call


def _choice(compiler: ArgumentCompiler, condition: Node, then: Node, other: Node) -> Reader:
    holds = compiler.condition(condition)
    first, second = compiler.first(then), compiler.first(other)
    # The other branch is not evaluated.
    return lambda row: first(row) if holds(row) is True else second(row)


def _array_to_string(compiler: ArgumentCompiler, arguments: tuple[Node, ...]) -> Reader:
    value, bytes_max = compiler.value(arguments[0]), compiler.allowed.text_bytes
    separator, *null = [compiler.first(argument) for argument in arguments[1:]]

    def call(row: Row) -> Value:
        between = separator(row)
        instead = null[0](row) if null else None
        joined = functions.to_string(
            value(row),
            "" if between is None else text(between),
            None if instead is None else text(instead),
            bytes_max,
        )
        return joined or None

    return call


def _replacing(
    replace: Callable[[Scalar, Scalar | None], str | None], whole: First, new: First
) -> Reader:
    def call(row: Row) -> Value:
        value = whole(row)
        return None if value is None else replace(value, new(row)) or None

    return call


def _converter(kind: str, allowed: Allowance) -> Callable[[Scalar], Scalar | None]:
    """Return the function that converts a scalar to an argument of this kind."""
    match kind:
        case "n":
            return number
        case "c":
            return _count
        case "t":
            return text
    return _text_within(allowed.sought_bytes if kind == "f" else allowed.text_bytes)


def _text_within(bytes_max: int) -> Callable[[Scalar], str | None]:
    def short(value: Scalar) -> str | None:
        found = text(value)
        # NULL and no error: a filter has an answer for every message.
        return found if len(found) <= bytes_max else None

    return short


def _count(value: Scalar) -> int | None:
    found = number(value)
    # Neither NaN nor an infinity is a count.
    return int(found) if math.isfinite(found) else None


MANY = 256


class LiteralKind(StrEnum):
    """The kinds of an argument that must be a literal."""

    PATTERN = "pattern"
    FORMAT = "format"


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's number of arguments, and which of them must be a literal, if any.

    `literal_at` is its place among the arguments, from 0.
    """

    least: int
    most: int
    literal_at: int | None = None
    literal_kind: LiteralKind | None = None


SIGNATURES: dict[str, Signature] = {
    **dict.fromkeys(
        ("LENGTH", "TRIM", "LTRIM", "RTRIM", "REVERSE", "UPPER", "LOWER", "MD5", "CRC32"),
        Signature(1, 1),
    ),
    **dict.fromkeys(("INSTR", "INSTR_I", "STREQUAL_I", "LEFT", "RIGHT"), Signature(2, 2)),
    **dict.fromkeys(
        ("ABS", "CEILING", "FLOOR", "SIGN", "EXP", "LN", "LOG2", "LOG10", "SQRT"), Signature(1, 1)
    ),
    **dict.fromkeys(
        ("RADIANS", "DEGREES", "SIN", "COS", "TAN", "COT", "ASIN", "ACOS", "ATAN"), Signature(1, 1)
    ),
    **dict.fromkeys(("SINH", "COSH", "TANH", "CHAR_VALUE"), Signature(1, 1)),
    **dict.fromkeys(("ARRAY_COUNT", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_SUM"), Signature(1, 1)),
    **dict.fromkeys(("GREATEST", "LEAST", "CONCAT", "COALESCE"), Signature(1, MANY)),
    **dict.fromkeys(("POWER", "ATAN2"), Signature(2, 2)),
    **dict.fromkeys(("TRUE_VALUE", "FALSE_VALUE", "NAN_VALUE"), Signature(0, 0)),
    **dict.fromkeys(("TOPIC_NAME", "MESSAGE_SIZE", "SOW_KEY"), Signature(0, 0)),
    "SUBSTR": Signature(2, 3),
    "REPLACE": Signature(3, 3),
    "REGEXP_MATCH": Signature(2, 2, 1, LiteralKind.PATTERN),
    "REGEXP_REPLACE": Signature(3, 3, 1, LiteralKind.PATTERN),
    "ROUND": Signature(1, 2),
    "WIDTH_BUCKET": Signature(4, 4),
    "ARRAY_TO_STRING": Signature(2, 3),
    "IF": Signature(3, 3),
    "STRFTIME": Signature(2, 2, 0, LiteralKind.FORMAT),
    "STRPTIME": Signature(2, 2, 1, LiteralKind.FORMAT),
    "GEO_DISTANCE": Signature(4, 4),
}

# With these, equal calls of the engine would no longer give equal outputs.
_NOT_DETERMINISTIC = frozenset(
    {"UNIX_TIMESTAMP", "UUID7", "LAST_READ", "VALUE_LOOKUP", "TODAY", "NOW", "RANDOM", "RAND"}
)
# AMPS takes these from a connection or its log; a filter here sees only the message.
_NOT_AVAILABLE = frozenset(
    {
        *("CORRELATION_ID", "BOOKMARK", "LAST_UPDATED", "SOW_KEY_HASH", "LAST_LEASED"),
        *("LEASE_COUNT", "CLIENT_NAME", "USER", "REMOTE_ADDRESS", "CLIENT_VERSION"),
        *("CONNECTION_NAME", "AMPS_INSTANCE_NAME", "AMPS_GROUP_NAME"),
    }
)
# These need the records of a group, which only a projection has.
_AGGREGATES = frozenset(
    {
        *("AVG", "ANY", "COUNT", "COUNT_DISTINCT", "GROUP_CONCAT", "MIN", "MAX", "STDDEV_POP"),
        *("STDDEV_SAMP", "SUM", "UNIQUE"),
    }
)


def signature_of(name: str, position: int) -> Signature:
    """Return the signature of a function named in capitals.

    Raises:
        FilterInvalid: no such function, with the reason.
    """
    if name in SIGNATURES:
        return SIGNATURES[name]
    # Filters may be written for AMPS: the refusal of a function of AMPS says why.
    if name in _NOT_DETERMINISTIC:
        raise FilterInvalid("this function is not deterministic", position)
    if name in _NOT_AVAILABLE:
        raise FilterInvalid("this function is not available in a filter", position)
    if name in _AGGREGATES:
        raise FilterInvalid("an aggregate is not available in a filter", position)
    raise FilterInvalid("there is no function of this name", position)
