"""Select lists: which fields stay (rule view-8)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import PathInvalid
from tidegate.keys.select import Select

pytestmark = rule("view-8")


ORDER = b'{"id":1.0,"px":{"bid":1.50,"ask":2.00},"tags":[1,2],"fills":[{"q":1,"p":2},{"q":3}]}'


@rule("view-8")
@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ("[-/]", b"{}"),
        ("[+/]", ORDER),
        ("[-/,+/id]", b'{"id":1.0}'),
        ("[-/,+/px]", b'{"px":{"bid":1.50,"ask":2.00}}'),
        ("[-/,+/px/ask]", b'{"px":{"ask":2.00}}'),
        ("[-/,+/px,-/px/ask]", b'{"px":{"bid":1.50}}'),
        ("[-/px/ask,+/px,-/]", b'{"px":{"bid":1.50}}'),
        ("[-/px,-/fills]", b'{"id":1.0,"tags":[1,2]}'),
        ("[-/px,-/fills,-/tags]", b'{"id":1.0}'),
        ("[-/,+/id,-/id]", b'{"id":1.0}'),
        ("[-/,-/id,+/id]", b"{}"),
        ("[-/,+/nowhere]", b"{}"),
        ("[-/,+$.px['bid']]", b'{"px":{"bid":1.50}}'),
    ],
)
def test_the_most_specific_directive_wins_and_the_first_among_equals(
    select: str, kept: bytes
) -> None:
    assert Select.parse(select).apply(ORDER) == kept


@rule("view-8")
@pytest.mark.parametrize(
    ("select", "payload", "kept"),
    [
        # what is dropped stays only for what is kept inside it
        ("[-/,+/a/b]", b'{"a":{"c":1}}', b"{}"),
        ("[-/,+/a/b]", b'{"a":1}', b"{}"),
        ("[-/a/b]", b'{"a":{"b":1}}', b'{"a":{}}'),
        ("[-/a/b]", b'{"a":1}', b'{"a":1}'),
        ("[-/a/b,+/a/b/c]", b'{"a":{"b":{"c":1,"d":2}}}', b'{"a":{"b":{"c":1}}}'),
        # in arrays of objects a field is that of each object
        ("[-/,+/a/b]", b'{"a":[{"b":1,"c":2},{"c":3},4,{"b":5}]}', b'{"a":[{"b":1},{"b":5}]}'),
        ("[-/,+/a/b]", b'{"a":[1,2]}', b"{}"),
        ("[-/a/b]", b'{"a":[{"b":1,"c":2.0},4,[{"b":5}]]}', b'{"a":[{"c":2.0},4,[{}]]}'),
        ("[-/a/b]", b'{"a":[]}', b'{"a":[]}'),
        ("[-/a]", b'{"a":[1,2],"b":[1, 2]}', b'{"b":[1, 2]}'),
        # other messages are kept whole
        ("[-/]", b"5", b"5"),
        ("[-/,+/a]", b'[{"a":1,"b":2}]', b'[{"a":1,"b":2}]'),
        # nothing is left of what a duplicate name hides
        ("[-/a/b]", b'{"a":{"b":1},"a":{"c":2}}', b'{"a":{"c":2}}'),
        ("[+/]", b' { "a" : 1 } ', b' { "a" : 1 } '),
    ],
)
def test_objects_are_looked_into_also_in_arrays(select: str, payload: bytes, kept: bytes) -> None:
    assert Select.parse(select).apply(payload) == kept


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 4),
        ("-/a", 4),
        ("[-/a", 4),
        ("[]", 5),
        ("[/a]", 5),
        ("[-/, /a]", 9),
        ("[-/,]", 8),
        ("[-/,+a]", 9),
        ("[+]", 6),
        ("[-/a/]", 8),
        ("[-/,+$.a[0]]", 9),
        ("[- /a]", 6),
    ],
)
def test_malformed_lists_are_refused_with_their_place(text: str, position: int) -> None:
    with pytest.raises(PathInvalid) as refused:
        Select.parse(text, 4)
    assert refused.value.position == position


def test_a_select_list_is_a_value() -> None:
    select = Select.parse("[ -/ , +$.a ,-/a/b,-/a,+$['x y']]")
    assert str(select) == "[-/,+/a,-/a/b,+$['x y']]"
    assert Select.parse(str(select)) == select
    assert hash(Select.parse("[-/,+/a]")) == hash(Select.parse("[-/,+$['a']]"))


@pytest.mark.parametrize(
    ("text", "keeps_all"), [("[+/]", True), ("[+/a,+/b]", True), ("[-/a]", False)]
)
def test_a_list_may_keep_everything(text: str, keeps_all: bool) -> None:
    assert Select.parse(text).keeps_all is keeps_all
    assert Select().keeps_all
    assert Select().apply(ORDER) == ORDER


names = st.sampled_from("abc")
values = st.recursive(
    st.integers(0, 3),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
directives = st.lists(st.tuples(st.booleans(), st.lists(names, max_size=3).map(tuple)), min_size=1)


def leaves(value: Any, steps: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    if not isinstance(value, dict):
        return {steps: value}
    found: dict[tuple[str, ...], int] = {}
    for name, inner in value.items():
        found |= leaves(inner, (*steps, name))
    return found


@given(st.dictionaries(names, values), directives)
@examples(30)
def test_each_field_stays_by_its_most_specific_directive(
    value: Any, given_directives: list[tuple[bool, tuple[str, ...]]]
) -> None:
    def stays(steps: tuple[str, ...]) -> bool:
        covering = [one for one in given_directives if steps[: len(one[1])] == one[1]]
        return max(covering, key=lambda one: len(one[1]), default=(True, ()))[0]

    text = ",".join(("+/" if keep else "-/") + "/".join(path) for keep, path in given_directives)
    select = Select.parse(f"[{text}]")
    kept = select.apply(json.dumps(value).encode())
    assert leaves(json.loads(kept)) | {(): {}} == {
        steps: leaf for steps, leaf in leaves(value).items() if stays(steps)
    } | {(): {}}
    assert select.apply(kept) == kept or kept == json.dumps(value).encode()
