"""Key specs, and the key that a message has by one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import KeyInvalid, KeyMissing, PathInvalid
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import (
    FIELDS_MAX,
    KeySpec,
    conflation_key,
    read_fields,
    record_key,
    split_list,
)


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


def coarse(spec: str, payload: str) -> str:
    return conflation_key(KeySpec.parse(spec))(payload.encode())


@rule("key-3")
def test_a_refusal_names_the_field_of_the_key() -> None:
    with pytest.raises(KeyInvalid, match=r"/a: .* not null"):
        record_key(KeySpec.parse("[/k,/a]"))(b'{"k":1,"a":null}')
    with pytest.raises(KeyMissing, match="no field /a"):
        record_key(KeySpec.parse("[/k,/a]"))(b'{"k":1}')


@pytest.mark.parametrize(
    ("path", "payload", "said"),
    [
        ("/k", b'"{}"', "no field /k: it is a string, not an object"),
        ("/k", b' [{"k":1}]', "no field /k: it is an array, not an object"),
        ("/k", b"-7", "no field /k: it is a number, not an object"),
        ("/k", b"false", "no field /k: it is a boolean, not an object"),
        ("/k", b"null", "no field /k: it is null, not an object"),
        ("$[0]", b"{}", "no field $[0]: it is an object, not an array"),
        ("$[0]", b"[]", "no field $[0]"),
        ("/k", b'{"j":1}', "no field /k"),
    ],
)
def test_a_message_of_another_kind_is_told_apart_from_one_without_the_field(
    path: str, payload: bytes, said: str
) -> None:
    with pytest.raises(KeyMissing) as refused:
        record_key(KeySpec.of([path]))(payload)
    assert refused.value.detail == f"the message has {said}"


@rule("interval-9")
def test_in_a_conflation_key_a_missing_field_is_null_and_anything_else_its_own_text() -> None:
    assert coarse("[/a,/b]", '{"a":1.0}') == "[1,null]"
    assert coarse("[/a]", '{"a":null}') == coarse("[/a]", "[]") == coarse("[/a/b]", '{"a":7}')
    assert coarse("[/a]", '{"a":{"b":1}}') == '[{"b":1}]'
    assert coarse("[/a]", '{"a":1e30}') != coarse("[/a]", '{"a":1e31}')
    assert coarse("[/a]", '{"a":"null"}') != coarse("[/a]", '{"a":null}')


VALUES = st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=3), st.none())
RECORDS = st.dictionaries(
    st.sampled_from(["a", "b", "c\n"]),
    st.one_of(VALUES, st.dictionaries(st.sampled_from("ab"), VALUES)),
)
PATHS = (("a",), ("b", "a"), ("b", "b"), ("c\n",))


@examples(30)
@given(RECORDS, st.lists(st.sampled_from(PATHS), min_size=1, unique=True))
def test_only_the_fields_that_are_asked_for_are_read(
    record: dict[str, object], paths: list[tuple[str, ...]]
) -> None:
    def plain(steps: tuple[str, ...]) -> object:
        found: object = record
        for step in steps:
            found = found.get(step, "absent") if isinstance(found, dict) else "absent"
        return found

    texts = read_fields(tuple(FieldPath(steps) for steps in paths))(json.dumps(record).encode())
    for steps, text in zip(paths, texts, strict=True):
        expected = plain(steps)
        assert (text is None and expected == "absent") or json.loads(text or b"0") == expected
