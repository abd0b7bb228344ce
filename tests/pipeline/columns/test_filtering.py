"""Columns answer a filter as the closures do, or leave it to them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.filter import Filter
from tidegate.pipeline.columns.filtering import BatchFilter

COLUMNS = [
    "/a > 4",
    "/a <= 4.5 AND NOT /b = 'x'",
    "NOT (/a = 1 AND /b = 'y')",
    "/b IN ('x', 'y') OR /a IN (1, 2.5, -3)",
    "/a IN (1, 'x')",
    "/b IS NOT NULL AND /a != 1",
    "/b < 'y' OR /b >= 'z'",
    "NOT /a IN (1, 2)",
    "/a = -0.0",
]
CLOSURES = [
    "/a + 1 > 4", "/b LIKE 'x'", "/a/c = 1", "/a = /b", "/a = TRUE", "/b = ''", "/b = 'é'",
    "/a = 9007199254740993", "/a IN (1, NULL)", "/a BETWEEN 1 AND 2", "4 < /a", "TRUE",
]  # fmt: skip

scalars = st.sampled_from(["1", "2.5", "-3", "-0.0", "4", "5", "1e2", "null"])
texts = st.sampled_from(['"x"', '"y"', '""', '"zz"', '"é"', '"5"', "null"])
odd = st.sampled_from(
    ["true", "[]", "[5]", "{}", "9007199254740993", "1" * 400, '"x"', '"5"', "1e308", "7"]
)
members = st.one_of(
    st.builds('{{"a":{},"b":{}}}'.format, scalars, texts),
    st.builds('{{"a":{}}}'.format, scalars),
    st.builds('{{"b":{},"b":{}}}'.format, texts, texts),
)
mixed = st.builds('{{"a":{},"b":{}}}'.format, st.one_of(scalars, odd), st.one_of(texts, odd))


def agree(text: str, messages: list[str]) -> None:
    wanted = Filter.parse(text)
    bodies = [one.encode() for one in messages]
    matches = wanted.matcher("")
    found = BatchFilter(wanted, "").matching(
        pa.array(bodies, pa.binary()), lambda: [""] * len(bodies)
    )
    assert found.tolist() == [matches(body, "") for body in bodies]


@pytest.mark.parametrize("text", COLUMNS + CLOSURES)
@examples(8)
@given(st.lists(members, max_size=6))
def test_plain_messages_are_judged_alike(text: str, messages: list[str]) -> None:
    agree(text, messages)


@pytest.mark.parametrize("text", COLUMNS)
@examples(8)
@given(st.lists(st.one_of(members, mixed, st.just("[]"), st.just("7")), max_size=5))
def test_odd_messages_are_left_to_the_closures(text: str, messages: list[str]) -> None:
    agree(text, messages)


def test_which_filters_are_columns() -> None:
    assert all(BatchFilter(Filter.parse(text), "").paths for text in COLUMNS)
    assert not any(BatchFilter(Filter.parse(text), "").paths for text in CLOSURES)


def test_a_message_of_very_many_brackets_is_left_to_the_closures() -> None:
    agree("/a = 1", ['{"a":1,"b":[' + "[]," * 200_000 + "1]}"])
