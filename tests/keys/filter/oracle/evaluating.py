"""A tree and a message to a value: every operand is evaluated, nothing is prepared or kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.keys.filter.oracle.allowances import COPIES, SEARCHES, Allowances
from tests.keys.filter.oracle.grammar import Node, parsed
from tests.keys.filter.oracle.logic import calculated, compared, is_affixed, is_between, is_in
from tests.keys.filter.oracle.numbers import NUMBERS
from tests.keys.filter.oracle.patterns import Pattern, array_bytes, characters, found
from tests.keys.filter.oracle.texts import TEXTS
from tests.keys.filter.oracle.times import time_read, time_written
from tests.keys.filter.oracle.values import at, condition, elements, first, message, number, text


@dataclass(frozen=True)
class Subject:
    """What is asked about: a message as Python has it, and what stands around it."""

    value: Any
    size_bytes: int
    topic: str
    record: str
    allowances: Allowances


class Answers(NamedTuple):
    """Whether a filter matches, and its value as an expression: None, a bool, int, float or str."""

    matches: bool
    value: Any


@dataclass(frozen=True)
class Oracle:
    """What a text means."""

    tree: Node
    allowances: Allowances
    asks_record: bool

    @classmethod
    def parse(cls, spelling: str) -> Oracle:
        """Raises `Refused`."""
        tree = parsed(spelling)
        return cls(tree, Allowances.of(tree), "SOW_KEY" in spelling.upper())

    def answers(self, payload: bytes, topic: str = "", record: str = "") -> Answers:
        """Answer as `Filter` (rule filter-10) and as `Expression` (rules filter-6 and filter-9)."""
        subject = Subject(message(payload), len(payload), topic, record, self.allowances)
        value = first(evaluated(self.tree, subject))
        shown = characters(value) if isinstance(value, bytes) else value
        return Answers(condition(value) is True, shown)


def evaluated(node: Node, subject: Subject) -> Any:
    """The value of a node; the empty string is NULL wherever it arises (rule filter-7)."""
    value = KINDS[node[0]](node, subject)
    return None if value == b"" else value


def _not(node: Node, subject: Subject) -> bool | None:
    x = condition(evaluated(node[1], subject))
    return None if x is None else not x


def _and(node: Node, subject: Subject) -> bool | None:
    x, y = (condition(evaluated(operand, subject)) for operand in node[1:])
    return y if x is True else x


def _or(node: Node, subject: Subject) -> bool | None:
    x, y = (condition(evaluated(operand, subject)) for operand in node[1:])
    if x is True or y is True:
        return True
    return None if x is None or y is None else False


def _compare(node: Node, subject: Subject) -> bool | None:
    return compared(node[1], evaluated(node[2], subject), evaluated(node[3], subject))


def _arithmetic(node: Node, subject: Subject) -> Any:
    return calculated(node[1], evaluated(node[2], subject), evaluated(node[3], subject))


def _between(node: Node, subject: Subject) -> bool | None:
    x, low, high = (evaluated(operand, subject) for operand in node[1:])
    return is_between(x, low, high)


def _in(node: Node, subject: Subject) -> bool | None:
    return is_in(evaluated(node[1], subject), [evaluated(item, subject) for item in node[2]])


def _affixed(node: Node, subject: Subject) -> bool | None:
    items = [evaluated(item, subject) for item in node[2]]
    return is_affixed(node[0], evaluated(node[1], subject), items)


def _like(node: Node, subject: Subject) -> bool | None:
    value = evaluated(node[1], subject)
    texts = [text(element) or b"" for element in elements(value)]
    size_bytes = array_bytes(texts) if isinstance(value, list) else sum(map(len, texts))
    if not texts or size_bytes > subject.allowances.pattern:
        return None
    return any(found(node[2], whole) for whole in texts)


def _is_null(node: Node, subject: Subject) -> bool:
    return evaluated(node[1], subject) is None


def _is_nan(node: Node, subject: Subject) -> bool:
    x = first(evaluated(node[1], subject))
    return isinstance(x, float) and math.isnan(x)


def _call(node: Node, subject: Subject) -> Any:
    name = node[1]
    arguments = [evaluated(a, subject) if isinstance(a, tuple) else a for a in node[2]]
    if name.startswith("REGEXP") and len(text(arguments[0]) or b"") > subject.allowances.pattern:
        return None
    if name in NUMBERS:
        return NUMBERS[name](*arguments)
    if name in TEXTS:
        return _of_texts(name, arguments, subject.allowances)
    match name:
        case "IF":
            return first(arguments[1] if condition(arguments[0]) is True else arguments[2])
        case "STRFTIME":
            seconds = number(arguments[1])
            return None if seconds is None else time_written(arguments[0], seconds)
        case "STRPTIME":
            whole = text(arguments[0])
            if whole is None or len(whole) > subject.allowances.copy:
                return None
            return time_read(whole, arguments[1])
        case "TOPIC_NAME":
            return subject.topic.encode()
        case "SOW_KEY":
            return subject.record.encode()
        case "MESSAGE_SIZE":
            return subject.size_bytes
    raise AssertionError(name)


def _of_texts(name: str, arguments: list[Any], allowances: Allowances) -> Any:
    """A call that is NULL for too long a text, in or out (rule filter-4)."""
    if name not in COPIES + SEARCHES:
        return TEXTS[name](*arguments)
    bytes_max = allowances.search if name in SEARCHES else allowances.copy
    looked_at = arguments[1:2] if name == "ARRAY_TO_STRING" else arguments
    texts = [text(argument) or b"" for argument in looked_at if not isinstance(argument, Pattern)]
    result = TEXTS[name](*arguments)
    texts += [result] if isinstance(result, bytes) else []
    return None if any(len(whole) > bytes_max for whole in texts) else result


KINDS = {
    "literal": lambda node, subject: node[1],
    "path": lambda node, subject: at(subject.value, node[1]),
    "not": _not,
    "and": _and,
    "or": _or,
    "compare": _compare,
    "arithmetic": _arithmetic,
    "call": _call,
    "between": _between,
    "in": _in,
    "begins": _affixed,
    "ends": _affixed,
    "like": _like,
    "is null": _is_null,
    "is nan": _is_nan,
}
