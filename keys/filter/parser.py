"""Tokens to a tree by recursive descent, within limits on depth, nodes and length.

value       = conjunction {OR conjunction}
conjunction = negation {AND negation}
negation    = NOT negation | predicate
predicate   = sum [comparison sum | IS [NOT] (NULL | NAN) | [NOT] test]
test        = IN list | LIKE string | BETWEEN sum AND sum | (BEGINS | ENDS) WITH list
sum         = product {("+" | "-") product}
product     = signed {("*" | "/" | "%" | MOD) signed}
signed      = "-" signed | ["+"] number | primary
primary     = number | string | path | constant | call | "(" value ")"
call        = name "(" [value {"," value}] ")"
list        = "(" value {"," value} ")"
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.calls import LiteralKind, Signature, signature_of
from tidegate.keys.filter.patterns import INSTRUCTIONS_MAX, compiled
from tidegate.keys.filter.times import check_format
from tidegate.keys.filter.tokens import Kind, Token, number_of, scan
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
    joined,
)
from tidegate.keys.path import FieldPath

TEXT_LENGTH_MAX = 4_096
# A canonical text may be longer than its source, and has to parse again.
CANONICAL_LENGTH_MAX = 8 * TEXT_LENGTH_MAX
DEPTH_MAX = 32  # bounds the recursion of parser, printer and compiler
# With the allowance, the bound of what a filter may cost for a message (rule filter-4).
NODES_MAX = 256
LIST_LENGTH_MAX = 1_000

_CONSTANTS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
# No function may have such a name, or the grammar would be ambiguous.
_RESERVED = {"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "BEGINS", "ENDS", "WITH", "AS"}
_RESERVED |= {"MOD", "NAN"}
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


class Budget:
    """Counts depth, nodes and regular expressions; every excess is a `FilterInvalid`."""

    def __init__(self) -> None:
        self._depth = 0
        self._nodes = 0
        self._instructions: dict[str, int] = {}

    @contextmanager
    def nested(self, position: int) -> Iterator[None]:
        """Count one more level for what is parsed inside."""
        if self._depth == DEPTH_MAX:
            raise FilterInvalid(f"nested deeper than {DEPTH_MAX} levels", position)
        self._depth += 1
        yield
        self._depth -= 1  # not in a `finally`: an error ends the parse

    def node(self, position: int) -> None:
        """Count one more node."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise FilterInvalid(f"more than {NODES_MAX} nodes", position)

    def skip_next(self) -> None:
        """Leave the next node uncounted."""
        # A literal in a list is not counted, as a long list of constants is compiled to one set.
        # `LIST_LENGTH_MAX` bounds these.
        self._nodes -= 1

    def pattern(self, pattern: str, position: int) -> None:
        """Count one more regular expression; refuse a text that is none, and too large ones."""
        # By pattern: equal ones are compiled once, and counted once.
        self._instructions[pattern] = compiled(pattern, position).programsize
        if sum(self._instructions.values()) > INSTRUCTIONS_MAX:
            raise FilterInvalid("the regular expressions are too large", position)


class Parser:
    """Reads one expression after another from a text.

    `position` is the start of the text in the text around it, `start` the start of reading in the
    text. Names in `aggregates` (capitals) parse as calls of any number of arguments; the caller
    gives them a meaning. Every method raises `FilterInvalid` with its position.
    """

    def __init__(
        self,
        text: str,
        position: int = 0,
        *,
        start: int = 0,
        aggregates: frozenset[str] = frozenset(),
    ) -> None:
        try:
            # Values are compared as UTF-8, and a lone surrogate has none.
            text.encode()
        except UnicodeEncodeError as error:
            raise FilterInvalid("a lone surrogate is not text", position + error.start) from None
        self._text = text
        self._position = position
        self._aggregates = aggregates
        self._budget = Budget()
        self._token = scan(text, start, position, operand=True)

    @property
    def next_start(self) -> int:
        """The start of the next token in the text."""
        return self._token.start

    @property
    def at_end(self) -> bool:
        """True if only white space is left."""
        return self._token.kind is Kind.END

    def accept(self, *words: str) -> str | None:
        """Take the next token if it is one of these symbols or words; which one it was."""
        token = self._token
        if not token.says(*words):
            return None
        self._advance()
        return str(token.value)

    def expect(self, *words: str) -> None:
        """Take one token after another, each of which must be this symbol or word."""
        for word in words:
            if self.accept(word) is None:
                raise self._unexpected(word)

    def path(self) -> FieldPath:
        """Take a field path, such as the one after AS."""
        path = self._token.value
        if not isinstance(path, FieldPath):
            raise self._unexpected("a field path")
        self._advance()
        return path

    def value(self) -> Node:
        """Take one expression, as long as it goes on."""
        operands = [self._conjunction()]
        while self._operator("OR"):
            operands.append(self._conjunction())
        return joined(Or, operands)

    def _conjunction(self) -> Node:
        operands = [self._negation()]
        while self._operator("AND"):
            operands.append(self._negation())
        return joined(And, operands)

    def _negation(self) -> Node:
        position = self._place
        if not self._operator("NOT"):
            return self._predicate()
        with self._budget.nested(position):
            return Not(self._negation())

    def _predicate(self) -> Node:
        value = self._sum()
        if comparison := self._operator(*_COMPARISONS):
            node: Node = Compare(comparison, value, self._sum())
        elif self._operator("IS"):
            node = self._state(value)
        else:
            inverted = self._operator("NOT") is not None
            found = self._tested(value)
            if found is None:
                if inverted:
                    raise self._unexpected("IN, LIKE, BETWEEN, BEGINS or ENDS")
                return value
            node = Not(found) if inverted else found
        # Languages disagree on `a < b < c`, so it is refused.
        if self._token.says(*_COMPARISONS, "IS", "IN", "LIKE", "BETWEEN", "BEGINS", "ENDS", "NOT"):
            raise self._unexpected("AND, OR or the end; predicates do not chain")
        return node

    def _state(self, value: Node) -> Node:
        inverted = self._operator("NOT")
        state = self.accept("NULL", "NAN")
        if state is None:
            raise self._unexpected("NULL or NAN")
        return Not(Is(value, state)) if inverted else Is(value, state)

    def _tested(self, value: Node) -> Node | None:
        match self._operator("IN", "LIKE", "BETWEEN", "BEGINS", "ENDS"):
            case "IN":
                return In(value, self._list())
            case "LIKE":
                return Like(value, self._pattern())
            case "BETWEEN":
                low = self._sum()
                self.expect("AND")
                return Between(value, low, self._sum())
            case "BEGINS" | "ENDS" as end:
                self.expect("WITH")
                return Affix(end, value, self._list())
        return None

    def _sum(self) -> Node:
        left = self._product()
        while operator := self._operator("+", "-"):
            left = Arithmetic(operator, left, self._product())
        return left

    def _product(self) -> Node:
        left = self._signed()
        while operator := self._operator("*", "/", "%", "MOD"):
            left = Arithmetic("%" if operator == "MOD" else operator, left, self._signed())
        return left

    def _signed(self) -> Node:
        position = self._place
        sign = self.accept("-", "+")
        if sign is None:
            return self._primary()
        # A sign belongs to the number: `-5` is one constant, which an index of filters can use.
        if self._token.kind is Kind.NUMBER:
            return self._number(sign)
        if sign == "+":
            raise self._unexpected("a number after +")
        # Two nodes: the subtraction and its zero.
        self._budget.node(position)
        self._budget.node(position)
        with self._budget.nested(position):
            return Arithmetic("-", Literal(0), self._signed())

    def _primary(self) -> Node:
        token = self._token
        match token.kind:
            case Kind.NUMBER:
                return self._number("")
            case Kind.PATH:
                self._budget.node(self._place)
                return Field(self.path())
            case Kind.STRING:
                self._budget.node(self._place)
                self._advance()
                return Literal(str(token.value))
            case Kind.NAME if token.value not in _RESERVED:
                return self._named()
        position = self._place
        if self.accept("(") is None:
            raise self._unexpected("a value")
        with self._budget.nested(position):
            inner = self.value()
        self.expect(")")
        return inner

    def _number(self, sign: str) -> Node:
        self._budget.node(self._place)
        number = number_of(sign + str(self._token.value))
        self._advance()
        return Literal(number)

    def _named(self) -> Node:
        position = self._place
        name = str(self._token.value)
        self._budget.node(position)
        self._advance()
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name])
        if not self._token.says("("):
            raise FilterInvalid("expected a value; a field begins with /", position)
        # The projection checks the arguments of aggregates: its message is better.
        signature = None if name in self._aggregates else signature_of(name, position)
        return Call(name, self._arguments(signature, position))

    def _arguments(self, signature: Signature | None, position: int) -> tuple[Node, ...]:
        inside = self._place
        self.expect("(")
        arguments: list[Node] = []
        with self._budget.nested(inside):
            # An empty list is allowed once, before the first argument; `f(a,)` is an error.
            while arguments or not self._token.says(")"):
                if signature is not None and len(arguments) == signature.literal_at:
                    arguments.append(self._literal(signature.literal_kind))
                else:
                    arguments.append(self.value())
                if self.accept(",") is None:
                    break
        self.expect(")")
        if signature and not signature.least <= len(arguments) <= signature.most:
            raise FilterInvalid(f"expected {_arity(signature)}", position)
        return tuple(arguments)

    def _literal(self, kind: LiteralKind | None) -> Literal:
        self._budget.node(self._place)
        if kind is LiteralKind.PATTERN:
            return Literal(self._pattern())
        token = self._literal_text("a format in quotes")
        check_format(str(token.value), self._position + token.start)
        return Literal(str(token.value))

    def _pattern(self) -> str:
        token = self._literal_text("a pattern in quotes")
        self._budget.pattern(str(token.value), self._position + token.start)
        return str(token.value)

    def _literal_text(self, expected: str) -> Token:
        token = self._token
        if token.kind is not Kind.STRING:
            raise self._unexpected(expected)
        self._advance()
        return token

    def _list(self) -> tuple[Node, ...]:
        inside = self._place
        self.expect("(")
        items: list[Node] = []
        with self._budget.nested(inside):
            while True:
                if len(items) == LIST_LENGTH_MAX:
                    detail = f"a list has at most {LIST_LENGTH_MAX} values"
                    raise FilterInvalid(detail, self._place)
                items.append(self._item())
                if self.accept(",") is None:
                    break
        self.expect(")")
        return tuple(items)

    def _item(self) -> Node:
        position = self._place
        self._budget.skip_next()
        item = self.value()
        if not isinstance(item, Literal):
            self._budget.node(position)
        return item

    def _operator(self, *words: str) -> str | None:
        """Take one of these operators, which is a node."""
        position = self._place
        operator = self.accept(*words)
        if operator is not None:
            self._budget.node(position)
        return operator

    @property
    def _place(self) -> int:
        return self._position + self._token.start

    def _advance(self) -> None:
        token = self._token
        # After a value `/` divides, and elsewhere it begins a path.
        ends_value = token.kind in (Kind.PATH, Kind.NUMBER, Kind.STRING) or token.says(
            ")", "]", *_CONSTANTS, "NAN"
        )
        self._token = scan(self._text, token.end, self._position, operand=not ends_value)

    def _unexpected(self, expected: str) -> FilterInvalid:
        return FilterInvalid(f"expected {expected}", self._place)


def parse_value(
    text: str, position: int = 0, *, start: int = 0, aggregates: frozenset[str] = frozenset()
) -> tuple[Node, int]:
    """Parse one expression that begins at `start`; return it and the start of the next token.

    Raises:
        FilterInvalid: no expression begins there, or it is too large.
    """
    parser = Parser(text, position, start=start, aggregates=aggregates)
    return parser.value(), parser.next_start


def parse_whole(text: str, position: int = 0) -> Node:
    """Parse a text that is one expression.

    Raises:
        FilterInvalid: as `parse_value`, or more text follows.
    """
    parser = Parser(text, position)
    node = parser.value()
    if not parser.at_end:
        raise FilterInvalid("expected an operator or the end", position + parser.next_start)
    return node


def _arity(signature: Signature) -> str:
    if signature.least == signature.most:
        return "1 argument" if signature.least == 1 else f"{signature.least} arguments"
    return f"at least {signature.least} and at most {signature.most} arguments"
