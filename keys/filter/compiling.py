"""A tree compiled to closures over a row; a subtree that occurs twice is evaluated once."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

from tidegate.keys.filter.calls import compile_call
from tidegate.keys.filter.fields import (
    Fields,
    Reader,
    Row,
    Value,
    between,
    compare,
    has_affix,
    is_null,
)
from tidegate.keys.filter.patterns import Allowance, searcher
from tidegate.keys.filter.tree import (
    Affix,
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Field,
    In,
    Is,
    Like,
    Literal,
    Node,
    Not,
    Or,
    printed,
    walk,
)
from tidegate.keys.filter.values import (
    Array,
    Opaque,
    Scalar,
    calculated,
    narrow,
    number,
    truth,
    widened,
)

Test = Callable[[bytes, str], bool]
Condition = Callable[[Row], bool | None]
First = Callable[[Row], Scalar | None]
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Each sign of the language as a function of Python."""


def compile_test(tree: Node, topic: str) -> Test:
    """Compile `(strict JSON text, record key text) -> whether the tree is TRUE`."""
    compiler = Compiler(tree, topic)
    row, holds = compiler.fields.row, compiler.condition(tree)

    def test(payload: bytes, record_key: str) -> bool:
        return holds(row(payload, record_key)) is True  # NULL is no match (rule filter-10)

    return test


def compile_value(tree: Node, topic: str) -> Callable[[bytes], Scalar | None]:
    """Compile `strict JSON text -> the tree's value`, for an array its first element."""
    compiler = Compiler(tree, topic)
    row, value_of = compiler.fields.row, compiler.first(tree)

    def evaluate(payload: bytes) -> Scalar | None:
        value = value_of(row(payload, ""))
        return widened(value) if isinstance(value, str) else value

    return evaluate


class Compiler:
    """Compiles the nodes of one tree; a node that occurs twice shares a slot of the row."""

    def __init__(self, tree: Node, topic: str) -> None:
        self.topic = narrow(topic)
        self.allowed = Allowance.of(tree)
        paths = (node.path for node in walk(tree) if isinstance(node, Field))
        self.fields = Fields(paths, self.allowed.elements)
        seen = Counter(printed(node) for node in walk(tree) if not isinstance(node, Literal))
        self._slots = {
            text: -1 - index
            for index, text in enumerate(t for t, times in seen.items() if times > 1)
        }

    def value(self, node: Node) -> Reader:
        """Compile `row -> value`; a node that occurs twice keeps its value in the row."""
        if isinstance(node, Literal):
            constant = _constant(node)
            return lambda row: constant
        read = self._value(node)
        slot = self._slots.get(printed(node)) if self._slots else None
        if slot is None:
            return read

        def kept(row: Row) -> Value:
            found = row[3]
            # `in`, as a value that was found may be NULL.
            if slot not in found:
                found[slot] = read(row)
            return found[slot]  # type: ignore[no-any-return]  # what was put there above

        return kept

    def first(self, node: Node) -> First:
        """Compile `row -> scalar`: an array's first element, None of an object (filter-7, -9)."""
        read = self.value(node)

        def scalar(row: Row) -> Scalar | None:
            value = read(row)
            if isinstance(value, Array):
                return value.first
            return None if isinstance(value, Opaque) else value

        return scalar

    def condition(self, node: Node) -> Condition:
        """Compile `row -> TRUE, FALSE or NULL` (rule filter-10)."""
        if isinstance(node, Compare | In | Like | Between | Affix | Is | Not | And | Or):
            return self.value(node)  # type: ignore[return-value]  # these give nothing else
        read = self.first(node)

        def holds(row: Row) -> bool | None:
            value = read(row)
            return None if value is None else truth(value)

        return holds

    def _value(self, node: Node) -> Reader:
        match node:
            case Field(path):
                return self.fields.reader(path)
            case Call():
                return compile_call(self, node)
            case Arithmetic(sign, left, right):
                return _arithmetic(sign, self.first(left), self.first(right))
            case Compare(sign, left, right):
                return self._comparison(sign, left, right)
            case In(value, items):
                return self._membership(value, items)
            case And(operands):
                return _conjunction([self.condition(operand) for operand in operands])
            case Or(operands):
                return _disjunction([self.condition(operand) for operand in operands])
            case Not(operand):
                return _negation(self.condition(operand))
        return self._test(node)

    def _test(self, node: Node) -> Reader:
        match node:
            case Is(value, "NULL"):
                read = self.value(value)
                return lambda row: read(row) is None
            case Is(value, _):
                return _not_a_number(self.first(value))
            case Like(value, pattern):
                return _applied(searcher(pattern, self.allowed), self.value(value))
            case Between(value, low, high):
                return _range(self.value(value), self.first(low), self.first(high))
            case Affix(end, value, items):
                return _affixes(end, self.value(value), [self.first(item) for item in items])
        raise AssertionError(node)

    def _comparison(self, sign: str, left: Node, right: Node) -> Reader:
        read = self.value(left)
        constant = _constant(right) if isinstance(right, Literal) else None
        if constant is not None:
            return _against(sign, read, constant)
        other = self.value(right)
        return lambda row: compare(sign, read(row), other(row))

    def _membership(self, value: Node, items: tuple[Node, ...]) -> Reader:
        read = self.value(value)
        # One set, so that a list of a thousand constants takes one lookup.
        constants = Array([_constant(item) for item in items if isinstance(item, Literal)])
        others = [self.value(item) for item in items if not isinstance(item, Literal)]
        nulls = None in constants.items

        def member(row: Row) -> bool | None:
            found = read(row)
            if is_null(found):
                return None
            known = compare("=", found, constants) if constants.scalars else False
            if known:
                return True
            answers = [known, *(compare("=", found, other(row)) for other in others)]
            return True if True in answers else None if nulls or None in answers else False

        return member


def _constant(literal: Literal) -> Scalar | None:
    """Return the value of a literal; the empty text is NULL (rule filter-7)."""
    value = literal.value
    return narrow(value) or None if isinstance(value, str) else value


def _against(sign: str, read: Reader, constant: Scalar) -> Reader:
    """Compile a comparison with a constant; two values of one kind are the common case."""
    holds: Callable[[Any, Any], bool] = COMPARISONS[sign]
    # Values of another kind go through `compare`, which knows words and numbers.
    kinds = {str} if isinstance(constant, str) else {int, float, bool}

    def test(row: Row) -> bool | None:
        value = read(row)
        if type(value) in kinds:
            return holds(value, constant)
        return compare(sign, value, constant)

    return test


def _arithmetic(sign: str, left: First, right: First) -> Reader:
    def calculate(row: Row) -> Value:
        x, y = left(row), right(row)
        return None if x is None or y is None else calculated(sign, number(x), number(y))

    return calculate


def _conjunction(operands: list[Condition]) -> Reader:
    def all_hold(row: Row) -> bool | None:
        for operand in operands:
            if (answer := operand(row)) is not True:
                return answer
        return True

    return all_hold


def _disjunction(operands: list[Condition]) -> Reader:
    def some_holds(row: Row) -> bool | None:
        answer: bool | None = False
        for operand in operands:
            if (found := operand(row)) is True:
                return True
            if found is None:
                answer = None
        return answer

    return some_holds


def _negation(operand: Condition) -> Reader:
    def inverted(row: Row) -> bool | None:
        answer = operand(row)
        return None if answer is None else not answer

    return inverted


def _not_a_number(read: First) -> Reader:
    def test(row: Row) -> bool:
        value = read(row)
        return isinstance(value, float) and math.isnan(value)

    return test


def _applied(test: Callable[[Value], bool | None], read: Reader) -> Reader:
    return lambda row: test(read(row))


def _range(read: Reader, low: First, high: First) -> Reader:
    return lambda row: between(read(row), low(row), high(row))


def _affixes(end: str, read: Reader, items: list[First]) -> Reader:
    return lambda row: has_affix(end, read(row), [item(row) for item in items])
