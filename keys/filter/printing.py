"""A tree to its one canonical text, which parses to an equal tree."""

from __future__ import annotations

import re

from keys.filter.tree import (
    Affix,
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Constant,
    Field,
    In,
    Is,
    Like,
    Literal,
    Node,
    Not,
    Or,
)

_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _PRIMARY = range(1, 8)
_TO_ESCAPE = re.compile(r"[\\'\x00-\x1f\x7f]")
_NAMED_ESCAPES = {"\\": "\\\\", "'": "\\'", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def printed(node: Node) -> str:
    """The canonical text: capitals, single quotes, no parenthesis that is not needed."""
    return _text(node, _OR)


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + _TO_ESCAPE.sub(_escaped, text) + "'"


def _text(node: Node, least: int) -> str:
    """The node's text, in parentheses if it binds less than it must here."""
    text, level = _spelt(node)
    return text if level >= least else f"({text})"


def _spelt(node: Node) -> tuple[str, int]:
    """The node's text, and how tightly it binds."""
    match node:
        case Literal(value):
            return _constant(value), _PRIMARY
        case Field(path):
            return str(path), _PRIMARY
        case Call(name, arguments):
            return f"{name}({_listed(arguments)})", _PRIMARY
        case Arithmetic(operator, left, right):
            level = _SUM if operator in "+-" else _PRODUCT
            return f"{_text(left, level)} {operator} {_text(right, level + 1)}", level
        case And(operands):
            return " AND ".join(_text(operand, _NOT) for operand in operands), _AND
        case Or(operands):
            return " OR ".join(_text(operand, _AND) for operand in operands), _OR
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
            return repr(value)


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    return _NAMED_ESCAPES.get(character) or f"\\x{ord(character):02x}"
