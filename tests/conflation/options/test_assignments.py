"""Options taken apart (rule option-1): names, values, and where each stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.parse import Assignment, assignments

pytestmark = rule("option-1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t", []),
        ("a", [("a", 0, None, 1)]),
        ("a,b", [("a", 0, None, 1), ("b", 2, None, 3)]),
        ("a=1,", [("a", 0, "1", 2)]),
        (" a = 1 , b ,\t", [("a", 1, "1", 5), ("b", 9, None, 10)]),
        ("a=", [("a", 0, "", 2)]),
        ("a==1", [("a", 0, "=1", 2)]),
        ("a=[x,[y,z]],b", [("a", 0, "[x,[y,z]]", 2), ("b", 12, None, 13)]),
        ("a=['],',\"]\"],b", [("a", 0, "['],',\"]\"]", 2), ("b", 13, None, 14)]),
        (r"a=['\'],'],b", [("a", 0, r"['\'],']", 2), ("b", 11, None, 12)]),
        ("a=[[/o'clock,[] = 1],b", [("a", 0, "[[/o'clock,[] = 1]", 2), ("b", 21, None, 22)]),
        ("a='1,b", [("a", 0, "'1", 2), ("b", 5, None, 6)]),
        ("a=1],b", [("a", 0, "1]", 2), ("b", 5, None, 6)]),
    ],
)
def test_parts_have_names_values_and_places(
    text: str, expected: list[tuple[str, int, str | None, int]]
) -> None:
    assert list(assignments(text)) == [Assignment(*part) for part in expected]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (",", 0),
        (" ,a", 1),
        ("a,,", 2),
        ("a,,b", 2),
        ("=1", 0),
        ("A", 0),
        ("a, b-c", 3),
        ("a b=1", 0),
        ("a=[", 2),
        ("a,b=[[x]", 4),
        ("a=['x]", 3),
        ("a=[b, \"x]'", 6),
    ],
)
def test_what_is_no_part_is_refused_with_its_place(text: str, position: int) -> None:
    with pytest.raises(OptionsInvalid) as refused:
        list(assignments(text))
    assert refused.value.position == position


@examples(300, nightly=20_000)
@given(st.text(alphabet="ab=,[]/'\"\\ x\u00e9", max_size=30))
def test_places_are_those_in_the_text(text: str) -> None:
    try:
        found = list(assignments(text))
    except OptionsInvalid as error:
        refused = error
        assert refused.position is not None
        assert 0 <= refused.position <= len(text)
        return
    for name, at, value, value_at in found:
        assert text.startswith(name, at)
        assert text.startswith(value or "", value_at)
