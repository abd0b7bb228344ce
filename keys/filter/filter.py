"""The two things that a text of the language can be: a filter, or an expression with a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from keys.errors import FilterInvalid
from keys.filter.compiling import Test, compile_test, compile_value
from keys.filter.index import Equality, equality_of
from keys.filter.limits import CANONICAL_LENGTH_MAX, TEXT_LENGTH_MAX
from keys.filter.numbers import Scalar
from keys.filter.parser import parse_whole
from keys.filter.printing import printed
from keys.filter.tree import And, Field, Node, joined, walk
from keys.path import FieldPath


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
            FilterInvalid: malformed, or over a limit (rule 84).
        """
        return cls.of(_parsed(text, position))

    @classmethod
    def of(cls, tree: Node) -> Filter:
        """The filter with this tree."""
        return cls(tree, printed(tree))

    def __str__(self) -> str:
        """The canonical text; it parses to an equal filter."""
        return self.text

    def matcher(self, topic: str = "") -> Test:
        """`(strict JSON text, record key text) -> whether it matches`; never raises.

        The key is the canonical JSON array, "" if there is none.
        """
        return _test(self, topic)

    def equality(self) -> Equality | None:
        """The field and constants one of which it must equal for the filter to match, if any."""
        return equality_of(self.tree)


@dataclass(frozen=True, slots=True)
class Expression:
    """One value of a message; equal when the canonical texts are."""

    tree: Node = field(compare=False)
    text: str

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Expression:
        """Parse an expression; `position` is where it stands in the text around it.

        Raises:
            FilterInvalid: malformed, or over a limit (rule 84).
        """
        return cls.of(_parsed(text, position))

    @classmethod
    def of(cls, tree: Node) -> Expression:
        """The expression with this tree, such as one that `parse_value` found."""
        return cls(tree, printed(tree))

    def __str__(self) -> str:
        """The canonical text; it parses to an equal expression."""
        return self.text

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        """The fields it reads, each once, in the order of the text."""
        found = (node.path for node in walk(self.tree) if isinstance(node, Field))
        return tuple(dict.fromkeys(found))

    def evaluator(self, topic: str = "") -> Callable[[bytes], Scalar | None]:
        """`strict JSON text -> value`: None, bool, int, float or str; never raises."""
        return _value(self, topic)


def conjunction(*filters: Filter) -> Filter:
    """The filter that matches what all of these match, in this order; of none: TRUE.

    It may be larger than a text is allowed to be.
    """
    if not filters:
        return Filter.parse("TRUE")
    return Filter.of(joined(And, [each.tree for each in dict.fromkeys(filters)]))


@lru_cache(maxsize=4_096)
def _test(found: Filter, topic: str) -> Test:
    return compile_test(found.tree, topic)


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
    if len(text) > TEXT_LENGTH_MAX and printed(node) != text:
        raise too_long
    return node
