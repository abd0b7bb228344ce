"""Function calls to closures over a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from keys.filter import functions_array, functions_number, functions_text
from keys.filter.allowance import Allowance
from keys.filter.fields import Reader, Row, Value
from keys.filter.matching import replacer, searcher
from keys.filter.numbers import Scalar, narrow, number, text, widened
from keys.filter.times import reader, written
from keys.filter.tree import Call, Literal, Node

First = Callable[[Row], Scalar | None]


class Reading(Protocol):
    """What compiles the arguments."""

    topic: str
    allowed: Allowance

    def value(self, node: Node) -> Reader:
        """`row -> value`."""

    def first(self, node: Node) -> First:
        """`row -> value`, of an array its first element."""

    def condition(self, node: Node) -> Callable[[Row], bool | None]:
        """`row -> TRUE, FALSE or NULL`."""


_CONSTANTS: dict[str, Scalar] = {"TRUE_VALUE": True, "FALSE_VALUE": False, "NAN_VALUE": math.nan}
_PLAIN = functions_text.FUNCTIONS | functions_number.FUNCTIONS
_VARIADIC: dict[str, Callable[[list[Scalar | None]], Scalar | None]] = {
    "GREATEST": lambda values: functions_array.best(">", values),
    "LEAST": lambda values: functions_array.best("<", values),
    "COALESCE": lambda values: next((value for value in values if value is not None), None),
}
_JOINING: dict[str, Callable[[list[Scalar | None], int], Scalar | None]] = {
    "CONCAT": functions_text.concat,
    "REPLACE": functions_text.replace,
}
_ARRAY: dict[str, Callable[[Value], Value]] = {
    "ARRAY_COUNT": functions_array.count,
    "ARRAY_MAX": functions_array.greatest_element,
    "ARRAY_MIN": functions_array.least_element,
    "ARRAY_SUM": functions_array.total,
}


def compile_call(compiler: Reading, call: Call) -> Reader:
    """`row -> the function's value`; an empty text is NULL (rule 87)."""
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


def _special(compiler: Reading, name: str, arguments: tuple[Node, ...]) -> Reader:
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
            read = reader(literals[1])
            return _plain(compiler, "s", lambda whole: read(widened(whole)), arguments[:1])
    raise AssertionError(name)


def _writer(form: str) -> Callable[[float], str]:
    return lambda seconds: narrow(written(form, seconds) or "")


def _plain(
    compiler: Reading,
    kinds: str,
    function: Callable[..., Scalar | None],
    arguments: tuple[Node, ...],
) -> Reader:
    """A function of converted arguments, of which none may be NULL (rule 103)."""
    pairs = [
        (_converter(kind, compiler.allowed), compiler.first(argument))
        for kind, argument in zip(kinds, arguments, strict=False)
    ]

    def call(row: Row) -> Value:
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


def _choice(compiler: Reading, condition: Node, then: Node, other: Node) -> Reader:
    holds = compiler.condition(condition)
    first, second = compiler.first(then), compiler.first(other)
    return lambda row: first(row) if holds(row) is True else second(row)


def _array_to_string(compiler: Reading, arguments: tuple[Node, ...]) -> Reader:
    value, bytes_max = compiler.value(arguments[0]), compiler.allowed.text_bytes
    separator, *null = [compiler.first(argument) for argument in arguments[1:]]

    def call(row: Row) -> Value:
        between = separator(row)
        instead = null[0](row) if null else None
        joined = functions_array.to_string(
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
    """What makes an argument of any scalar."""
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
        return found if len(found) <= bytes_max else None

    return short


def _count(value: Scalar) -> int | None:
    found = number(value)
    return int(found) if math.isfinite(found) else None
