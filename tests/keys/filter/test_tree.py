"""The syntax tree and its canonical text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.filter.parser import parse_whole
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
    printed,
    walk,
)
from tidegate.keys.path import FieldPath


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


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False).map(abs)
)
NAMES = TEXTS.filter(lambda name: name != "*")
LEAVES: st.SearchStrategy[Node] = st.one_of(
    st.builds(Literal, st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)),
    st.lists(st.one_of(NAMES, st.integers(0, 9)), min_size=1, max_size=3)
    .map(tuple)
    .map(lambda steps: Field(FieldPath(steps))),
)


def branches(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    lists = st.lists(inner, min_size=1, max_size=3)
    pairs = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*/%"), inner, inner),
        st.builds(Compare, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(Between, inner, inner, inner),
        st.builds(In, inner, lists.map(tuple)),
        st.builds(Like, inner, st.sampled_from(["", "a.*", "(?i)'\\d"])),
        st.builds(Affix, st.sampled_from(["BEGINS", "ENDS"]), inner, lists.map(tuple)),
        st.builds(Is, inner, st.sampled_from(["NULL", "NAN"])),
        st.builds(Not, inner),
        pairs.map(lambda operands: joined(And, operands)),
        pairs.map(lambda operands: joined(Or, operands)),
        st.builds(Call, st.sampled_from(["CONCAT", "COALESCE"]), lists.map(tuple)),
    )


TREES = st.recursive(LEAVES, branches, max_leaves=20)


@examples(20)
@given(TREES)
def test_a_tree_is_what_its_text_parses_to(tree: Node) -> None:
    assert parse_whole(printed(tree)) == tree


@rule("filter-1")
@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/a=='x'", "/a = 'x'"),
        ('$.a <> "x"', "/a != 'x'"),
        ("((/a)) in (1,2.50)", "/a IN (1, 2.5)"),
        ("not (/a is null)", "/a IS NOT NULL"),
        ("NOT /a LIKE r'\\d'", "/a NOT LIKE '\\\\d'"),
        ("(1 + 2) * 3 - (4 - 5)", "(1 + 2) * 3 - (4 - 5)"),
        ("(/a OR /b) AND (/c AND /d)", "(/a OR /b) AND /c AND /d"),
        ("NOT (/a = 1)", "NOT /a = 1"),
        ("(/a = 1) = (/b = 2)", "(/a = 1) = (/b = 2)"),
        ("/a[0] mod 2", "$['a'][0] % 2"),
        ("'\\t\\x01\\''", "'\\t\\x01\\''"),
        ("1E5", "100000.0"),
    ],
)
def test_the_canonical_text_normalises_spelling(text: str, canonical: str) -> None:
    assert str(Filter.parse(text)) == canonical
    assert Filter.parse(text) == Filter.parse(canonical)
    assert hash(Filter.parse(text)) == hash(Filter.parse(canonical))


def test_numbers_of_other_types_are_other_filters() -> None:
    assert len({Filter.parse(text) for text in ("1", "1.0", "TRUE", "'1'")}) == 4
