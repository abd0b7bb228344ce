"""Filters by the constants that they wait for: an index over subscriptions asks these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from keys.filter.allowance import Allowance
from keys.filter.fields import Fields, scalars
from keys.filter.numbers import narrow, number_in
from keys.filter.tree import And, Compare, Field, In, Literal, Node
from keys.path import FieldPath


@dataclass(frozen=True, slots=True)
class Equality:
    """A filter matches only messages among whose tokens for `path` is one of `tokens`."""

    path: FieldPath
    tokens: frozenset[str]


def equality_of(tree: Node) -> Equality | None:
    """The narrowest equality that the tree, or an operand of its top AND, demands."""
    operands = tree.operands if isinstance(tree, And) else (tree,)
    found = [demand for operand in operands if (demand := _demanded(operand)) is not None]
    return min(found, key=lambda demand: len(demand.tokens), default=None)


def index_tokens(path: FieldPath) -> Callable[[bytes], tuple[str, ...]]:
    """`strict JSON text -> tokens of the field`: one for each different element, none for NULL."""
    fields = Fields((path,), Allowance.of(Field(path)).elements)
    read = fields.reader(path)

    def tokens(payload: bytes) -> tuple[str, ...]:
        value = read(fields.row(payload, ""))
        found = (token_of(scalar) for scalar in scalars(value))
        return tuple(dict.fromkeys(token for token in found if token is not None))

    return tokens


def token_of(scalar: object) -> str | None:
    """What equal scalars have in common: a number's one spelling, or the word; None for NULL.

    5, 5.0, "5", "5.0" are one token, as are TRUE and 1.
    """
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
            return _equality(path, literals) if len(literals) == len(items) else None
    return None


def _equality(path: FieldPath, literals: tuple[Literal, ...]) -> Equality:
    tokens = (token_of(_narrowed(literal.value)) for literal in literals)
    return Equality(path, frozenset(token for token in tokens if token is not None))


def _narrowed(value: object) -> object:
    return narrow(value) if isinstance(value, str) else value
