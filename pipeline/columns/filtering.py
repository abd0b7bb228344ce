"""A filter over many messages at once: over columns where that is exact, else one by one.

Comparisons of a top-level field with a number or a text, `IN`, `IS NULL` and what AND, OR and NOT
make of them are answered for a whole batch, from the texts of the fields. Where a batch has a value
that columns cannot judge exactly (a bool, an array, an integer beyond a double, a text beside a
number), the closures of `keys/` answer, which is what the columns are measured by.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.filter import Filter
from tidegate.keys.filter.compiling import COMPARISONS
from tidegate.keys.filter.fields import BRACKETS_MAX
from tidegate.keys.filter.tree import And, Compare, Field, In, Is, Literal, Node, Not, Or, walk
from tidegate.keys.path import FieldPath
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.json_fields.field_columns import (
    FieldColumn,
    FieldColumns,
    can_find,
    find_fields,
    numbers,
    top_level,
)
from tidegate.pipeline.json_fields.objects import QUOTE

EMPTY = pa.scalar(b'""')
EXACT_MAX = 2**53  # beyond it neighboring integers are one double

Values = dict[FieldPath, FieldColumn]


class Truth(NamedTuple):
    """The messages for which a condition is TRUE, and those for which it is FALSE; else NULL."""

    true: Column
    false: Column


Condition = Callable[[Values], Truth]


class InexactError(ValueError):
    """A value that columns would not judge as the filter does."""


class BatchFilter:
    """One filter, for batches of messages.

    `paths` are the fields that columns judge, and `names` their names. Both are empty for a filter
    that only the closures can judge.
    """

    def __init__(self, wanted: Filter, topic: str) -> None:
        self._matches = wanted.matcher(topic)
        self._condition = _condition(wanted.tree)
        found = dict.fromkeys(node.path for node in walk(wanted.tree) if isinstance(node, Field))
        names = [name for name in map(top_level, found) if name is not None and can_find(name)]
        by_columns = self._condition is not None and len(names) == len(found)
        self.paths = list(found) if by_columns else []
        self.names = names if by_columns else []

    def matching(
        self,
        bodies: pa.Array,
        record_keys: Callable[[], Sequence[str]],
        fields: FieldColumns | None = None,
    ) -> Column:
        """Return which of these messages (binary, checked JSON, no nulls) match.

        Args:
            bodies: the messages.
            record_keys: returns the key of each; it is called where columns do not judge.
            fields: the fields of `names`, if they were found already.
        """
        found = self._judged(bodies, fields)
        if found is not None:
            return found
        pairs = zip(bodies.to_pylist(), record_keys(), strict=True)
        return np.array([self._matches(body, record) for body, record in pairs], np.bool_)

    def _judged(self, bodies: pa.Array, fields: FieldColumns | None) -> Column | None:
        """Return which messages match; None where only closures know."""
        if self._condition is None or not self.paths:
            return None
        # The closures look into no larger message before they have counted its brackets.
        if (pc.max(pc.binary_length(bodies)).as_py() or 0) > BRACKETS_MAX:
            return None
        fields = fields or find_fields(bodies, self.names)
        if fields is None:
            return None
        values = [fields[name] for name in self.names]
        try:
            return self._condition(dict(zip(self.paths, values, strict=True))).true
        except InexactError:
            return None


def _condition(node: Node) -> Condition | None:
    """Return a node as a condition over columns; None for nodes that columns cannot judge."""
    match node:
        case Compare(sign, Field(path), Literal(constant)) if _is_judged(constant):
            return lambda values: _compared(COMPARISONS[sign], values[path], constant)
        case In(Field(path), items):
            constants = [item.value for item in items if isinstance(item, Literal)]
            if len(constants) < len(items) or not all(map(_is_judged, constants)):
                return None
            return lambda values: _is_in(values[path], constants)
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


def _compared(sign: Callable[[Any, Any], Any], found: FieldColumn, constant: Any) -> Truth:
    if isinstance(constant, str):
        words, is_there = _words(found)
        fits = np.asarray(_ARROW[sign](words, pa.scalar(constant.encode(), pa.binary())))
    else:
        values, is_there = _numbers(found)
        fits = sign(values, constant)
    true = found.without_nulls.spread(fits, np.False_) & is_there
    return Truth(true, ~true & is_there)


_ARROW: dict[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] = {
    operator.eq: pc.equal,
    operator.ne: pc.not_equal,
    operator.lt: pc.less,
    operator.le: pc.less_equal,
    operator.gt: pc.greater,
    operator.ge: pc.greater_equal,
}


def _is_in(found: FieldColumn, constants: list[Any]) -> Truth:
    return reduce(_either, (_compared(operator.eq, found, constant) for constant in constants))


def _null(found: FieldColumn) -> Truth:
    try:
        _, is_there = _words(found)
    except InexactError:
        _, is_there = _numbers(found)
    return Truth(~is_there, is_there)


def _words(found: FieldColumn) -> tuple[pa.Array, Column]:
    """Return the values as strings without quotes, and which messages have one that is not NULL.

    The empty text is NULL too.
    """
    found = found.without_nulls
    texts = found.slices
    if not (found.text[found.starts] == QUOTE).all():
        raise InexactError("a number beside a text, or no scalar")
    if pc.any(pc.match_substring(texts, "\\")).as_py():
        raise InexactError("a text that is spelled with escapes")
    is_text = np.asarray(pc.not_equal(texts, EMPTY))
    return pc.binary_slice(texts, 1, -1), found.spread(is_text, np.False_)


def _numbers(found: FieldColumn) -> tuple[Column, Column]:
    """Return the values as doubles, and which messages have one that is not NULL."""
    found = found.without_nulls
    values = numbers(found)
    if values is None:
        raise InexactError("a value that is not a number")
    if (np.abs(values) > EXACT_MAX).any():
        raise InexactError("an integer that a double may not hold")
    return values, found.is_there
