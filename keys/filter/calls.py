"""Function calls to closures over a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from keys.filter import functions_array, functions_number, functions_text
from keys.filter.fields import Reader, Row, Value
from keys.filter.functions_text import TEXT_BYTES_MAX
from keys.filter.matching import replacer, searcher
from keys.filter.numbers import Scalar, narrow, number, text, widened
from keys.filter.times import reader, written
from keys.filter.tree import Call, Literal, Node

First = Callable[[Row], Scalar | None]


class Reading(Protocol):
    """What compiles the arguments."""

    topic: str
    bytes_max: int

    def value(self, node: Node) -> Reader:
        """`row -> value`."""

    def first(self, node: Node) -> First:
        """`row -> value`, of an array its first element."""

    def condition(self, node: Node) -> Callable[[Row], bool | None]:
        """`row -> TRUE, FALSE or NULL`."""


_CONSTANTS: dict[str, Scalar] = {"TRUE_VALUE": True, "FALSE_VALUE": False, "NAN_VALUE": math.nan}
_PLAIN = functions_text.FUNCTIONS | functions_number.FUNCTIONS
_VARIADIC: dict[str, Callable[[list[Scalar | None]], Scalar | None]] = {
    "CONCAT": functions_text.concat,
    "REPLACE": functions_text.replace,
    "GREATEST": lambda values: functions_array.best(">", values),
    "LEAST": lambda values: functions_array.best("<", values),
    "COALESCE": lambda values: next((value for value in values if value is not None), None),
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
        return _plain(*_PLAIN[name], [compiler.first(argument) for argument in arguments])
    if name in _VARIADIC:
        return _variadic(_VARIADIC[name], [compiler.first(argument) for argument in arguments])
    if name in _ARRAY:
        function, read = _ARRAY[name], compiler.value(arguments[0])
        return lambda row: function(read(row))
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
            search, whole = searcher(literals[1], compiler.bytes_max), firsts[0]
            return lambda row: search(whole(row))
        case "REGEXP_REPLACE":
            return _replacing(replacer(literals[1], compiler.bytes_max), firsts[0], firsts[2])
        case "STRFTIME":
            form = literals[0]
            return _plain("n", lambda seconds: narrow(written(form, seconds) or ""), firsts[1:])
        case "STRPTIME":
            read = reader(literals[1])
            return _plain("s", lambda whole: read(widened(whole)), firsts[:1])
    raise AssertionError(name)


def _plain(kinds: str, function: Callable[..., Scalar | None], reads: list[First]) -> Reader:
    """A function of converted arguments, of which none may be NULL (rule 103)."""
    converters = [_CONVERTERS[kind] for kind in kinds[: len(reads)]]
    pairs = list(zip(converters, reads, strict=True))

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
    value = compiler.value(arguments[0])
    separator, *null = [compiler.first(argument) for argument in arguments[1:]]

    def call(row: Row) -> Value:
        between = separator(row)
        instead = null[0](row) if null else None
        joined = functions_array.to_string(
            value(row),
            "" if between is None else text(between),
            None if instead is None else text(instead),
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


def _short(value: Scalar) -> str | None:
    found = text(value)
    return found if len(found) <= TEXT_BYTES_MAX else None


def _count(value: Scalar) -> int | None:
    found = number(value)
    return int(found) if math.isfinite(found) else None


_CONVERTERS: dict[str, Callable[[Scalar], Scalar | None]] = {
    "t": text,
    "s": _short,
    "n": number,
    "c": _count,
}
