"""Filters and expressions, parsed and compiled; and the index of filters by equality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.compiling import Test, compile_test, compile_value
from tidegate.keys.filter.fields import Fields, scalars
from tidegate.keys.filter.parser import CANONICAL_LENGTH_MAX, TEXT_LENGTH_MAX, parse_whole
from tidegate.keys.filter.patterns import Allowance
from tidegate.keys.filter.tree import (
    And,
    Compare,
    Field,
    In,
    Literal,
    Node,
    Or,
    joined,
    printed,
    walk,
)
from tidegate.keys.filter.values import Scalar, narrow, number_in
from tidegate.keys.path import FieldPath

TOPIC_NAME = "TOPIC_NAME"
"""The function whose value depends on the topic."""


@dataclass(frozen=True, slots=True)
class Equality:
    """A necessary condition of a filter: a message has one of `tokens` among those of `path`.

    An index over subscriptions then tries only the filters that wait for a message's tokens.
    """

    path: FieldPath
    tokens: frozenset[str]


def equality_of(tree: Node) -> Equality | None:
    """Return the narrowest equality that the tree, or an operand of its top AND, demands."""
    operands = tree.operands if isinstance(tree, And) else (tree,)
    found = [demand for operand in operands if (demand := _demanded(operand)) is not None]
    # The fewest tokens find the fewest messages.
    return min(found, key=lambda demand: len(demand.tokens), default=None)


def index_tokens(path: FieldPath) -> Callable[[bytes], tuple[str, ...]]:
    """Return `strict JSON text -> tokens of the field`: one for each distinct element."""
    fields = Fields((path,), Allowance.of(Field(path)).elements)
    read = fields.reader(path)

    def tokens(payload: bytes) -> tuple[str, ...]:
        value = read(fields.row(payload, ""))
        found = (token_of(scalar) for scalar in scalars(value))
        return tuple(dict.fromkeys(token for token in found if token is not None))

    return tokens


def token_of(scalar: object) -> str | None:
    """Return one token for all equal scalars: a number's one spelling, or the word; None for NULL.

    5, 5.0, "5", "5.0" are one token, as are TRUE and 1.
    """
    # Tokens are equal where `=` is TRUE, or the index would lose matches (rule filter-11).
    number = number_in(scalar) if isinstance(scalar, str) else scalar
    if isinstance(number, float) and number.is_integer():
        return str(int(number))
    if isinstance(number, int):
        return str(int(number))
    if isinstance(number, float):
        return repr(number)
    return scalar if isinstance(scalar, str) and scalar else None


def _demanded(node: Node) -> Equality | None:
    match node:
        case Compare("=", Field(path), Literal() as literal):
            return _equality(path, (literal,))
        case Compare("=", Literal() as literal, Field(path)):
            return _equality(path, (literal,))
        case In(Field(path), items):
            literals = tuple(item for item in items if isinstance(item, Literal))
            # An item that is no literal may equal any value: no list of tokens is enough.
            return _equality(path, literals) if len(literals) == len(items) else None
    return None


def _equality(path: FieldPath, literals: tuple[Literal, ...]) -> Equality:
    tokens = (token_of(_narrowed(literal.value)) for literal in literals)
    return Equality(path, frozenset(token for token in tokens if token is not None))


def _narrowed(value: object) -> object:
    return narrow(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate over messages; equal when the canonical texts are.

    `tree` is the public syntax tree, `text` its canonical spelling.
    """

    tree: Node = field(compare=False)
    text: str

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Filter:
        """Parse a filter; `position` is where it stands in the text around it.

        Raises:
            FilterInvalid: malformed, or over a limit (rule filter-4).
        """
        return _filter(text, position)

    @classmethod
    def of(cls, tree: Node) -> Filter:
        """Return the filter with this tree."""
        return cls(tree, printed(tree))

    def __str__(self) -> str:
        """Return the canonical text; it parses to an equal filter."""
        return self.text

    def matcher(self, topic: str = "") -> Test:
        """Return `(strict JSON text, record key text) -> whether it matches`, which never raises.

        The key is the canonical JSON array, "" if there is none.
        """
        # Topics share a filter that does not name them: compiling a long one takes milliseconds.
        return _test(self, topic if TOPIC_NAME in self.text else "")

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        """The fields it reads, each once, in the order of the text."""
        return _paths_in(self.tree)

    def equality(self) -> Equality | None:
        """Return the field and constants of which it must equal one in order to match, if any."""
        return _equality_of(self)


@dataclass(frozen=True, slots=True)
class Expression:
    """One value of a message; equal when the canonical texts are."""

    tree: Node = field(compare=False)
    text: str

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Expression:
        """Parse an expression; `position` is where it stands in the text around it.

        Raises:
            FilterInvalid: malformed, or over a limit (rule filter-4).
        """
        return cls.of(_parsed(text, position))

    @classmethod
    def of(cls, tree: Node) -> Expression:
        """Return the expression with this tree, such as one that `parse_value` found."""
        return cls(tree, printed(tree))

    def __str__(self) -> str:
        """Return the canonical text; it parses to an equal expression."""
        return self.text

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        """The fields it reads, each once, in the order of the text."""
        return _paths_in(self.tree)

    def evaluator(self, topic: str = "") -> Callable[[bytes], Scalar | None]:
        """Return `strict JSON text -> value`: None, bool, int, float or str; it never raises."""
        return _value(self, topic if TOPIC_NAME in self.text else "")


def conjunction(*filters: Filter) -> Filter:
    """Return the filter that matches what all of these match, in this order; TRUE for none.

    The result may be larger than a text is allowed to be.
    """
    if not filters:
        return Filter.parse("TRUE")
    # Without repetitions: equal filters are evaluated once.
    return Filter.of(joined(And, [each.tree for each in dict.fromkeys(filters)]))


def disjunction(*filters: Filter) -> Filter:
    """Return the filter that matches what any of these matches; FALSE for none.

    The result may be larger than a text is allowed to be.
    """
    if not filters:
        return Filter.parse("FALSE")
    return Filter.of(joined(Or, [each.tree for each in dict.fromkeys(filters)]))


def _paths_in(tree: Node) -> tuple[FieldPath, ...]:
    found = (node.path for node in walk(tree) if isinstance(node, Field))
    return tuple(dict.fromkeys(found))


# A request for a pattern asks for the same filter in each of its topics.
@lru_cache(maxsize=64)
def _filter(text: str, position: int) -> Filter:
    return Filter.of(_parsed(text, position))


# Subscriptions with equal filters share the compiled form.
@lru_cache(maxsize=4_096)
def _test(found: Filter, topic: str) -> Test:
    return compile_test(found.tree, topic)


@lru_cache(maxsize=4_096)
def _equality_of(found: Filter) -> Equality | None:
    return equality_of(found.tree)


@lru_cache(maxsize=4_096)
def _value(found: Expression, topic: str) -> Callable[[bytes], Scalar | None]:
    return compile_value(found.tree, topic)


def _parsed(text: str, position: int) -> Node:
    too_long = FilterInvalid(
        f"longer than {TEXT_LENGTH_MAX} characters", position + TEXT_LENGTH_MAX
    )
    if len(text) > CANONICAL_LENGTH_MAX:
        raise too_long
    node = parse_whole(text, position)
    # What was printed here must parse again, although capitals and spaces made it longer.
    if len(text) > TEXT_LENGTH_MAX and printed(node) != text:
        raise too_long
    return node
