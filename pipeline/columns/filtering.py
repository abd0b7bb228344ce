"""A filter over many messages at once: over columns where that is exact, else one by one.

Comparisons of a top-level field with a number or a text, `IN`, `IS NULL` and what AND, OR and NOT
make of them are answered for a whole batch. Where a batch has a value that columns cannot judge
exactly (a bool, an array, an integer beyond a double, a text beside a number), the closures of
`keys/` answer, which is what the columns are measured by.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tidegate.keys.filter import Filter
from tidegate.keys.filter.compiling import COMPARISONS
from tidegate.keys.filter.fields import BRACKETS_MAX
from tidegate.keys.filter.tree import And, Compare, Field, In, Is, Literal, Node, Not, Or, walk
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.intervals import Column

EXACT_MAX = 2**53  # beyond it neighbouring integers are one double

Values = dict[FieldPath, list[Any]]


class Truth(NamedTuple):
    """The messages for which a condition is TRUE, and those for which it is FALSE; else NULL."""

    true: Column
    false: Column


Condition = Callable[[Values], Truth]


class InexactError(ValueError):
    """A value that columns would not judge as the filter does."""


class BatchFilter:
    """One filter, for batches of messages."""

    def __init__(self, wanted: Filter, topic: str) -> None:
        self._matches = wanted.matcher(topic)
        self._condition = _condition(wanted.tree)
        found = (node.path for node in walk(wanted.tree) if isinstance(node, Field))
        self._paths = list(dict.fromkeys(found))
        self._decode = None if self._condition is None else _decoder(self._paths)

    @property
    def by_columns(self) -> bool:
        """True if columns are tried at all."""
        return self._decode is not None

    def matching(self, bodies: Sequence[bytes], record_keys: Sequence[str]) -> Column:
        """Return which of these messages (checked JSON) match."""
        if self._condition is not None and self._decode is not None:
            try:
                return self._by_columns(self._condition, self._decode, bodies)
            except (msgspec.MsgspecError, InexactError):
                pass  # a value that only the closures judge
        pairs = zip(bodies, record_keys, strict=True)
        return np.array([self._matches(body, record) for body, record in pairs], np.bool_)

    def _by_columns(
        self, condition: Condition, decode: Callable[[bytes], Any], bodies: Sequence[bytes]
    ) -> Column:
        if max(map(len, bodies), default=0) > BRACKETS_MAX:
            # For longer messages the closures also count brackets; the decoder here does not.
            raise InexactError("a message so long that its brackets are counted")
        records = list(map(decode, bodies))
        values = {
            path: list(map(operator.attrgetter(f"f{at}"), records))
            for at, path in enumerate(self._paths)
        }
        return condition(values).true


def _decoder(paths: list[FieldPath]) -> Callable[[bytes], Any] | None:
    # msgspec reads top-level fields only; deeper paths need the closures.
    if not paths or any(len(path.steps) > 1 for path in paths):
        return None
    fields = [(f"f{at}", str | int | float | None, None) for at in range(len(paths))]
    names = {f"f{at}": str(path.steps[0]) for at, path in enumerate(paths)}
    try:
        struct = msgspec.defstruct("Fields", fields, rename=names, gc=False)
    except ValueError:  # a name that no struct can have
        return None
    return msgspec.json.Decoder(struct).decode


def _condition(node: Node) -> Condition | None:
    """Return a node as a condition over columns; None for nodes that columns cannot judge."""
    match node:
        case Compare(sign, Field(path), Literal(constant)) if _is_judged(constant):
            return lambda values: _compared(COMPARISONS[sign], values[path], constant)
        case In(Field(path), items):
            constants = [item.value for item in items if isinstance(item, Literal)]
            if len(constants) < len(items) or not all(map(_is_judged, constants)):
                return None
            return lambda values: _member(values[path], constants)
        case Is(Field(path), "NULL"):
            return lambda values: _null(values[path])
        case Not(operand):
            inner = _condition(operand)
            return None if inner is None else lambda values: Truth(*reversed(inner(values)))
        case And(operands):
            return _joined(_both, operands)
        case Or(operands):
            return _joined(_either, operands)
    return None


def _joined(join: Callable[[Truth, Truth], Truth], operands: Sequence[Node]) -> Condition | None:
    inner = [found for found in map(_condition, operands) if found is not None]
    if len(inner) < len(operands):
        return None
    return lambda values: reduce(join, [condition(values) for condition in inner])


def _both(left: Truth, right: Truth) -> Truth:
    """Return AND: the left operand decides unless it is TRUE (rule filter-10)."""
    return Truth(left.true & right.true, left.false | (left.true & right.false))


def _either(left: Truth, right: Truth) -> Truth:
    return Truth(left.true | right.true, left.false & right.false)


def _is_judged(constant: object) -> bool:
    # The language compares the bytes of UTF-8: with an ASCII constant Python's texts compare alike.
    if isinstance(constant, str):
        return constant != "" and constant.isascii()
    # bool is an int to isinstance, and not a number to the filter language.
    return type(constant) in (int, float) and abs(constant) <= EXACT_MAX  # type: ignore[arg-type]  # a number, as was just asked


def _compared(sign: Callable[[Any, Any], Any], found: list[Any], constant: Any) -> Truth:
    if isinstance(constant, str):
        is_null = _texts(found)
        true = np.array([sign(text or "", constant) for text in found], np.bool_)
    else:
        numbers, is_null = _numbers(found)
        true = sign(numbers, constant)
    return Truth(true & ~is_null, ~true & ~is_null)


def _member(found: list[Any], constants: list[Any]) -> Truth:
    return reduce(_either, (_compared(operator.eq, found, constant) for constant in constants))


def _null(found: list[Any]) -> Truth:
    is_null = np.array([one is None or one == "" for one in found], np.bool_)
    return Truth(is_null, ~is_null)


def _texts(found: list[Any]) -> Column:
    """Return which are NULL; the empty text is NULL too."""
    if not set(map(type, found)) <= {str, type(None)}:
        raise InexactError("a number beside a text")
    return np.array([not text for text in found], np.bool_)


def _numbers(found: list[Any]) -> tuple[Column, Column]:
    """Return the values as doubles, and which are NULL."""
    if not set(map(type, found)) <= {int, float, type(None)}:
        raise InexactError("a text beside a number")
    try:
        numbers = np.array(found, np.float64)
    except OverflowError:
        raise InexactError("an integer that no double holds") from None
    is_null = np.isnan(numbers)
    if (np.abs(numbers[~is_null]) > EXACT_MAX).any():
        raise InexactError("an integer that a double may not hold")
    return numbers, is_null
