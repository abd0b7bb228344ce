"""Nodes are compared, joined and walked."""

from __future__ import annotations

from tidegate.keys.filter.parser import parse_whole
from tidegate.keys.filter.tree import And, Literal, Or, joined, walk


def test_constants_of_other_types_are_other_literals() -> None:
    assert len({Literal(1), Literal(1.0), Literal(True), Literal("1"), Literal(None)}) == 5
    assert Literal(1) == Literal(1)


def test_chains_are_one_node() -> None:
    one, two, three = Literal(1), Literal(2), Literal(3)
    assert joined(And, [joined(And, [one, two]), three]) == And((one, two, three))
    assert joined(Or, [joined(And, [one, two]), three]) == Or((And((one, two)), three))
    assert joined(And, [one]) is one


def test_a_walk_follows_the_text() -> None:
    found = [
        node.value
        for node in walk(parse_whole("1 + ABS(2) IN (3, 4)"))
        if isinstance(node, Literal)
    ]
    assert found == [1, 2, 3, 4]
