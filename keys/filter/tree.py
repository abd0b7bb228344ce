"""The syntax tree of a filter: a few kinds of nodes, the same for all spellings.

`a NOT IN (b)` is `Not(In(a, (b,)))`, `-x` is `0 - x`, parentheses disappear, and a chain of AND or
of OR is one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.keys.path import FieldPath

Constant = bool | int | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; 1, 1.0 and TRUE are three. The empty string is NULL but printed as it is."""

    value: Constant

    # Python has 1 == 1.0 == True; a canonical text must not change one into another.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._typed == other._typed

    def __hash__(self) -> int:
        return hash(self._typed)

    @property
    def _typed(self) -> tuple[type, Constant]:
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
    """Return the nodes right below a node, in the order of the text."""
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
    """Yield a node and all below it, in the order of the text."""
    # A list in place of recursion: the And of many filters may be deeper than a text.
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(children(found)))


def joined(kind: type[And | Or], operands: list[Node]) -> Node:
    """Return one And or Or of the operands, nested ones flattened; a single operand itself."""
    flat: list[Node] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, kind) else (operand,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _PRIMARY = range(1, 8)
_TO_ESCAPE = re.compile(r"[\\'\x00-\x1f\x7f]")
_NAMED_ESCAPES = {"\\": "\\\\", "'": "\\'", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def printed(node: Node) -> str:
    """Return the canonical text: capitals, single quotes, no needless parentheses."""
    return _text(node, _OR)


def quoted(text: str) -> str:
    """Return a string literal."""
    return "'" + _TO_ESCAPE.sub(_escaped, text) + "'"


def _text(node: Node, least: int) -> str:
    """Return the node's text, in parentheses if it binds less than it must here."""
    text, level = _spelled(node)
    return text if level >= least else f"({text})"


def _spelled(node: Node) -> tuple[str, int]:
    """Return the node's text, and how tightly it binds."""
    match node:
        case Literal(value):
            return _constant(value), _PRIMARY
        case Field(path):
            return str(path), _PRIMARY
        case Call(name, arguments):
            return f"{name}({_listed(arguments)})", _PRIMARY
        case Arithmetic(operator, left, right):
            level = _SUM if operator in "+-" else _PRODUCT
            # `a - (b - c)` keeps its parentheses, and `(a - b) - c` needs none.
            return f"{_text(left, level)} {operator} {_text(right, level + 1)}", level
        case And(operands):
            return " AND ".join(_text(operand, _NOT) for operand in operands), _AND
        case Or(operands):
            return " OR ".join(_text(operand, _AND) for operand in operands), _OR
        # Printed as people write it, `a NOT IN (b)`, which parses to the same node.
        case Not(In() | Like() | Between() | Affix() | Is() as inner):
            return _predicate(inner, "NOT "), _PREDICATE
        case Not(operand):
            return f"NOT {_text(operand, _NOT)}", _NOT
        case _:
            return _predicate(node, ""), _PREDICATE


def _predicate(node: Compare | In | Like | Between | Affix | Is, inverted: str) -> str:
    match node:
        case Compare(operator, left, right):
            return f"{_text(left, _SUM)} {operator} {_text(right, _SUM)}"
        case In(value, items):
            return f"{_text(value, _SUM)} {inverted}IN ({_listed(items)})"
        case Like(value, pattern):
            return f"{_text(value, _SUM)} {inverted}LIKE {quoted(pattern)}"
        case Between(value, low, high):
            bounds = f"{_text(low, _SUM)} AND {_text(high, _SUM)}"
            return f"{_text(value, _SUM)} {inverted}BETWEEN {bounds}"
        case Affix(end, value, items):
            return f"{_text(value, _SUM)} {inverted}{end} WITH ({_listed(items)})"
        case Is(value, state):
            return f"{_text(value, _SUM)} IS {inverted}{state}"


def _listed(nodes: tuple[Node, ...]) -> str:
    return ", ".join(_text(node, _OR) for node in nodes)


def _constant(value: Constant) -> str:
    match value:
        case None | bool():
            return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
        case str():
            return quoted(value)
        case _:
            # The shortest digits that read as the same double.
            return repr(value)


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    return _NAMED_ESCAPES.get(character) or f"\\x{ord(character):02x}"
