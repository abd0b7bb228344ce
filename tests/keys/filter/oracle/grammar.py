"""Tokens to nested tuples: recursive descent, a method for each strength (rule filter-1).

("literal", value)  ("path", steps)  ("not", x)  ("and", x, y)  ("or", x, y)
("compare", operator, x, y)  ("arithmetic", operator, x, y)  ("call", name, arguments)
("between", x, low, high)  ("in" | "begins" | "ends", x, items)  ("like", x, pattern)
("is null", x)  ("is nan", x)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.keys.filter.oracle.patterns import checked_pattern
from tests.keys.filter.oracle.reading import Refused, Token, number, tokens
from tests.keys.filter.oracle.times import checked_format

Node = tuple[Any, ...]

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
LITERALS = {"TRUE": True, "FALSE": False, "NULL": None}
DEPTH_MAX, NODES_MAX, ITEMS_MAX = 32, 256, 1_000
MANY = 1_000

ONE = "LENGTH TRIM LTRIM RTRIM REVERSE UPPER LOWER ABS SIGN CEILING FLOOR EXP LN LOG2 LOG10 SQRT"
ONE += " RADIANS DEGREES SIN COS TAN COT ASIN ACOS ATAN SINH COSH TANH MD5 CRC32 CHAR_VALUE"
ONE += " ARRAY_COUNT ARRAY_MAX ARRAY_MIN ARRAY_SUM"
TWO = "INSTR INSTR_I STREQUAL_I LEFT RIGHT POWER ATAN2 REGEXP_MATCH STRFTIME STRPTIME"
NONE = "TRUE_VALUE FALSE_VALUE NAN_VALUE TOPIC_NAME MESSAGE_SIZE SOW_KEY"
ARGUMENTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(NONE.split(), (0, 0)),
    **dict.fromkeys(ONE.split(), (1, 1)),
    **dict.fromkeys(TWO.split(), (2, 2)),
    **dict.fromkeys(("REPLACE", "REGEXP_REPLACE", "IF"), (3, 3)),
    **dict.fromkeys(("WIDTH_BUCKET", "GEO_DISTANCE"), (4, 4)),
    **dict.fromkeys(("CONCAT", "GREATEST", "LEAST", "COALESCE"), (1, MANY)),
    "SUBSTR": (2, 3),
    "ROUND": (1, 2),
    "ARRAY_TO_STRING": (2, 3),
}
PATTERN_AT = {"REGEXP_MATCH": 1, "REGEXP_REPLACE": 1}
FORMAT_AT = {"STRFTIME": 0, "STRPTIME": 1}


def parsed(text: str) -> Node:
    """The tree of a filter or expression."""
    parser = _Parser(tokens(text))
    tree = parser.disjunction()
    if parser.rest:
        raise Refused("something after the end")
    return tree


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.rest = list(reversed(found))
        self.depth = 0
        self.nodes = 0

    def next_is(self, *values: str) -> bool:
        """Whether the next tokens are these words or symbols."""
        coming = list(reversed(self.rest[-len(values) :]))
        return [(t.kind in ("word", "symbol"), t.value) for t in coming] == [
            (True, value) for value in values
        ]

    def take(self, *values: str) -> bool:
        """Takes these words or symbols if they come next."""
        if not self.next_is(*values):
            return False
        del self.rest[-len(values) :]
        return True

    def need(self, *values: str) -> None:
        if not self.take(*values):
            raise Refused(f"expected {values}")

    def next_kind(self) -> str:
        return self.rest[-1].kind if self.rest else "end"

    def node(self, *parts: Any) -> Node:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise Refused("too many nodes")
        return parts

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Refused("too deep")
        yield
        self.depth -= 1

    def disjunction(self) -> Node:
        tree = self.conjunction()
        while self.take("OR"):
            tree = self.node("or", tree, self.conjunction())
        return tree

    def conjunction(self) -> Node:
        tree = self.negation()
        while self.take("AND"):
            tree = self.node("and", tree, self.negation())
        return tree

    def negation(self) -> Node:
        if self.take("NOT"):
            with self.nested():
                return self.node("not", self.negation())
        return self.predicate()

    def predicate(self) -> Node:
        left = self.total()
        for operator in COMPARISONS:
            if self.take(operator):
                return self.node("compare", operator, left, self.total())
        if self.take("IS"):
            negated = self.take("NOT")
            kind = "is nan" if self.take("NAN") else "is null"
            if kind == "is null":
                self.need("NULL")
            tree = self.node(kind, left)
        else:
            negated = self.take("NOT")
            found = self.membership(left)
            if found is None:
                if negated:
                    raise Refused("NOT of what")
                return left
            tree = found
        return ("not", tree) if negated else tree

    def membership(self, left: Node) -> Node | None:
        """IN, LIKE, BETWEEN, BEGINS WITH and ENDS WITH."""
        if self.take("BETWEEN"):
            low = self.total()
            self.need("AND")
            return self.node("between", left, low, self.total())
        if self.take("LIKE"):
            if self.next_kind() != "string":
                raise Refused("a literal pattern")
            return self.node("like", left, checked_pattern(self.rest.pop().value))
        if self.take("IN"):
            return self.node("in", left, self.items())
        if self.take("BEGINS", "WITH"):
            return self.node("begins", left, self.items())
        if self.take("ENDS", "WITH"):
            return self.node("ends", left, self.items())
        return None

    def items(self) -> list[Node]:
        self.need("(")
        with self.nested():
            found = [self.item()]
            while self.take(","):
                found.append(self.item())
        self.need(")")
        if len(found) > ITEMS_MAX:
            raise Refused("too many items")
        return found

    def item(self) -> Node:
        before = self.nodes
        tree = self.disjunction()
        if tree[0] == "literal":
            self.nodes = before
        return tree

    def total(self) -> Node:
        tree = self.product()
        while self.next_is("+") or self.next_is("-"):
            operator = self.rest.pop().value
            tree = self.node("arithmetic", operator, tree, self.product())
        return tree

    def product(self) -> Node:
        tree = self.signed()
        while any(self.next_is(operator) for operator in ("*", "/", "%", "MOD")):
            operator = self.rest.pop().value
            operator = "%" if operator == "MOD" else operator
            tree = self.node("arithmetic", operator, tree, self.signed())
        return tree

    def signed(self) -> Node:
        if self.take("-"):
            if self.next_kind() == "number":
                return self.node("literal", number("-", self.rest.pop().value))
            with self.nested():
                self.node()
                return self.node("arithmetic", "-", ("literal", 0), self.signed())
        if self.take("+") and self.next_kind() != "number":
            raise Refused("+ stands before a number")
        return self.primary()

    def primary(self) -> Node:
        if self.take("("):
            with self.nested():
                tree = self.disjunction()
            self.need(")")
            return tree
        if not self.rest:
            raise Refused("the end")
        token = self.rest.pop()
        match token.kind:
            case "path":
                return self.node("path", token.value)
            case "string":
                return self.node("literal", token.value or None)
            case "number":
                return self.node("literal", number("", token.value))
            case "word" if token.value in LITERALS:
                return self.node("literal", LITERALS[token.value])
            case "word" if token.value in ARGUMENTS:
                return self.call(token.value)
        raise Refused(f"no value: {token}")

    def call(self, name: str) -> Node:
        self.need("(")
        arguments: list[Any] = []
        with self.nested():
            if not self.next_is(")"):
                arguments.append(self.argument(name, 0))
                while self.take(","):
                    arguments.append(self.argument(name, len(arguments)))
        self.need(")")
        fewest, most = ARGUMENTS[name]
        if not fewest <= len(arguments) <= most:
            raise Refused("number of arguments")
        return self.node("call", name, arguments)

    def argument(self, name: str, index: int) -> Any:
        for places, checked in ((PATTERN_AT, checked_pattern), (FORMAT_AT, checked_format)):
            if places.get(name) == index:
                self.node()
                if self.next_kind() != "string":
                    raise Refused("a literal")
                literal = checked(self.rest.pop().value)
                if not (self.next_is(",") or self.next_is(")")):
                    raise Refused("a literal alone")
                return literal
        return self.disjunction()
