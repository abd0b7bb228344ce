"""The syntax tree of a filter: few plain nodes, whatever spelling they came from.

`a NOT IN (b)` is `Not(In(a, (b,)))`, `-x` is `0 - x`, parentheses leave no trace, and chains of
AND and of OR are one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keys.path import FieldPath

Constant = bool | int | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; 1, 1.0 and TRUE are three, the empty string is written out but is NULL."""

    value: Constant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._told_apart == other._told_apart

    def __hash__(self) -> int:
        return hash(self._told_apart)

    @property
    def _told_apart(self) -> tuple[type, Constant]:
        return type(self.value), self.value


@dataclass(frozen=True, slots=True)
class Field:
    """The value of the message at a path."""

    path: FieldPath


@dataclass(frozen=True, slots=True)
class Call:
    """A function; its name in capitals."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+ - * / %`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """`= != < <= > >=`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """`value BETWEEN low AND high`, both included."""

    value: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class In:
    """`value IN (items)`."""

    value: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`value LIKE 'pattern'`: an RE2 expression, unanchored."""

    value: Node
    pattern: str


@dataclass(frozen=True, slots=True)
class Affix:
    """`value BEGINS WITH (items)`; `end` is BEGINS or ENDS."""

    end: str
    value: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Is:
    """`value IS NULL`, `value IS NAN`; `state` is NULL or NAN."""

    value: Node
    state: str


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Two or more operands, the first that is not TRUE decides; none of them an And."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more operands, TRUE if any is; none of them an Or."""

    operands: tuple[Node, ...]


Node = (
    Literal
    | Field
    | Call
    | Arithmetic
    | Compare
    | Between
    | In
    | Like
    | Affix
    | Is
    | Not
    | And
    | Or
)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below a node, in the order of the text."""
    match node:
        case Literal() | Field():
            return ()
        case Call(_, arguments):
            return arguments
        case Arithmetic(_, left, right) | Compare(_, left, right):
            return (left, right)
        case Between(value, low, high):
            return (value, low, high)
        case In(value, items) | Affix(_, value, items):
            return (value, *items)
        case Like(value, _) | Is(value, _) | Not(value):
            return (value,)
        case And(operands) | Or(operands):
            return operands


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, in the order of the text."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(children(found)))


def joined(kind: type[And | Or], operands: list[Node]) -> Node:
    """One And or Or of operands, with those inside it opened; of one operand itself."""
    flat: list[Node] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, kind) else (operand,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))
