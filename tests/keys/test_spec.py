"""Key specs: ordered, hashable, with two ways of writing them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys.errors import PathInvalid
from tidegate.keys.spec import FIELDS_MAX, KeySpec, split_list


def test_a_spec_is_an_ordered_value() -> None:
    assert KeySpec.parse("[/a,/b]") == KeySpec.of(["/a", "$.b"])
    assert hash(KeySpec.parse("[/a]")) == hash(KeySpec.of(["$['a']"]))
    assert KeySpec.parse("[/a,/b]") != KeySpec.parse("[/b,/a]")
    assert str(KeySpec.parse("[ /a ,\t$.b[0] ]")) == "[/a,$['b'][0]]"


def test_the_empty_spec_is_the_topic_itself() -> None:
    assert not KeySpec()
    assert KeySpec.of([]) == KeySpec()
    assert KeySpec.of(["/a"])


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 4),
        ("/a", 4),
        ("[/a", 4),
        ("/a]", 4),
        ("[", 4),
        ("[]", 5),
        ("[ ]", 6),
        ("[/a,]", 8),
        ("[,/a]", 5),
        ("[/a, b]", 9),
        ("[/a,/a]", 8),
        ("[/a,  $.a]", 10),
        ("[/a,/b/]", 10),
        ("[[/a]]", 5),
        ("[$['a,]", 5),
    ],
)
def test_malformed_specs_are_refused_with_their_place(text: str, position: int) -> None:
    with pytest.raises(PathInvalid) as refused:
        KeySpec.parse(text, 4)
    assert refused.value.position == position


def test_a_key_has_at_most_16_fields() -> None:
    paths = [f"/f{number}" for number in range(FIELDS_MAX + 1)]
    assert len(KeySpec.of(paths[:-1]).paths) == FIELDS_MAX
    with pytest.raises(PathInvalid, match="16"):
        KeySpec.of(paths)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [("", 0)]),
        ("a,b", [("a", 0), ("b", 2)]),
        ("a,", [("a", 0), ("", 2)]),
        ("a[b,c],d", [("a[b,c]", 0), ("d", 7)]),
        ("'a,b',c", [("'a,b'", 0), ("c", 6)]),
        ("'a\\',b',c", [("'a\\',b'", 0), ("c", 8)]),
        ("f(a,b),c", [("f(a,b)", 0), ("c", 7)]),
        ("'\",',c", [("'\",'", 0), ("c", 5)]),
    ],
)
def test_commas_inside_brackets_and_quotes_do_not_split(
    text: str, parts: list[tuple[str, int]]
) -> None:
    assert list(split_list(text)) == parts


@given(st.text(alphabet="a,[]()'\"\\ "))
def test_parts_put_together_again_are_the_text(text: str) -> None:
    parts = list(split_list(text))
    assert ",".join(part for part, _ in parts) == text
    assert all(text[at : at + len(part)] == part for part, at in parts)
