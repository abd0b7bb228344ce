"""Texts that are no filter are refused with a position; limits hold for any text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Expression
from tidegate.keys.filter.filter import Filter
from tidegate.keys.filter.parser import DEPTH_MAX, NODES_MAX, Budget, Parser, parse_value
from tidegate.keys.filter.tree import Arithmetic, Call, Field
from tidegate.keys.path import FieldPath

REFUSED = [
    ("", 0, "expected a value"),
    ("a = 1", 0, "a field begins with /"),
    ("1 = 2 = 3", 6, "do not chain"),
    ("/a LIKE '('", 8, "not a regular expression"),
    ("/a LIKE /b", 8, "pattern in quotes"),
    ("/a =", 4, "expected a value"),
    ("(1", 2, "expected )"),
    ("1)", 1, "the end"),
    ("'abc", 0, "not closed"),
    ("/a//b", 2, "a name after /"),
    ("3x", 1, "something else"),
    ("1e400", 0, "too large"),
    ("/a IS NOT", 9, "NULL or NAN"),
    ("/a NOT 1", 7, "expected IN"),
    (r"'\xff'", 0, "UTF-8"),
    (r"'a\x1'", 2, "hexadecimal"),
    (r"'\777'", 1, "octal"),
    ("'\ud800'", 1, "surrogate"),
    ("$.*", 0, "at least one"),
    ("$['*']", 0, "one place"),
    ("\u00a0/a", 0, "means nothing"),
    ("1 + UNIX_TIMESTAMP()", 4, "not deterministic"),
    ("CLIENT_NAME()", 0, "not available"),
    ("SUM(/a) > 1", 0, "aggregate"),
    ("FOO(1)", 0, "no function"),
    ("LENGTH()", 0, "1 argument"),
    ("STRFTIME('%Q', 1)", 9, "directive"),
    ("STRFTIME(/a, 1)", 9, "format in quotes"),
]


@rule("filter-1", "filter-2", "filter-3", "filter-15", "filter-16")
@pytest.mark.parametrize(("text", "position", "reason"), REFUSED)
def test_what_is_no_filter_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterInvalid, match=".*" + reason.replace(")", r"\)")) as refused:
        Filter.parse(text, 7)
    assert (refused.value.code, refused.value.position) == ("filter-invalid", 7 + position)


@rule("filter-4")
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(" * 5_000, 32),
        ("NOT " * 1_000 + "1", 128),
        ("-" * 4_000 + "1", 32),
        ("ABS(" * 500, 35 + 32 * 3),
        ("1+" * 300 + "1", 256),
        ("/a IN (" + "1," * 1_001 + "1)", 2_007),
        ("1" + " " * 4_096, 4_096),
        ("'" + "x" * 40_000, 4_096),
        (r"/a LIKE 'x{1000}' OR /a LIKE 'y{1000}y{1000}y{1000}'", 29),
    ],
)
def test_a_limit_is_reported_where_it_is_crossed(text: str, position: int) -> None:
    with pytest.raises(FilterInvalid) as refused:
        Filter.parse(text)
    assert refused.value.position == position


@rule("filter-4")
@pytest.mark.parametrize(
    "text",
    [
        "(" * 32 + "1" + ")" * 32,
        "1" + "+1" * 127,
        "/a IN (" + "1," * 999 + "1)",
        "1" + " " * 4_095,
        " AND ".join(["/a = 1"] * 64),
    ],
)
def test_what_is_just_within_the_limits_is_taken(text: str) -> None:
    assert Filter.parse(str(Filter.parse(text))) == Filter.parse(text)


PIECES = (
    *(
        "/a",
        "/b",
        "$.c",
        "[0]",
        "'x'",
        '"y"',
        "r'z'",
        "1",
        "2.5",
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
    ),
    *("%", "=", "!=", "<", "NOT", "AND", "OR", "IN", "LIKE", "BETWEEN", "BEGINS", "ENDS", "WITH"),
    *("IS", "NULL", "NAN", "TRUE", "ABS", "CONCAT", "IF", "\\", "'", "\u00e9", "\ud800", ".", "$"),
    *("[/", "]"),
)


@examples(30)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        found = Filter.parse(text)
    except FilterInvalid as refused:
        position = refused.position
    else:
        again = Filter.parse(str(found))
        assert (again, again.tree) == (found, found.tree)
        position = 0
    assert position is not None
    assert 0 <= position <= len(text)


def test_a_grammar_around_it_reads_one_value_and_goes_on() -> None:
    node, end = parse_value("[/a * 2 AS /b]", start=1)
    assert isinstance(node, Arithmetic)
    assert end == 8
    parser = Parser("SUM(/a) AS /b, 1", aggregates=frozenset({"SUM"}))
    assert parser.value() == Call("SUM", (Field(FieldPath(("a",))),))
    parser.expect("AS")
    assert parser.path() == FieldPath(("b",))
    assert parser.accept(",") == ","
    parser.value()
    assert parser.at_end


@rule("filter-4")
def test_a_budget_counts_nodes_and_depth() -> None:
    budget = Budget()
    for _ in range(NODES_MAX):
        budget.node(0)
    with pytest.raises(FilterInvalid, match="nodes"):
        budget.node(3)
    for _ in range(DEPTH_MAX + 1):
        with budget.nested(0):
            pass


@rule("filter-4")
@pytest.mark.parametrize(
    "text",
    [
        "REPLACE(/a, 'a', /a)",
        "UPPER(CONCAT(/a, 'x'))",
        "REGEXP_REPLACE(/a, 'a', 'b')",
        "IF(/a LIKE '(a|b)*a(a|b){500}', 1, NULL)",
        "MD5(CONCAT(/a, /a))",
    ],
)
def test_what_would_cost_too_much_is_null(text: str) -> None:
    payload = json.dumps({"a": "a" * 8_192}).encode()
    assert Expression.parse(text).evaluator()(payload) is None
    assert Expression.parse("INSTR(/a, 'ab') + LENGTH(/a)").evaluator()(payload) == 8_192
