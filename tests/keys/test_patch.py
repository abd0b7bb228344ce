"""Merge patches: what a delta says, and how deltas become one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.patch import apply, compose, diff, is_empty, with_fields
from tidegate.keys.path import FieldPath

pytestmark = rule("delta-5", "delta-2", "delta-1")


names = st.sampled_from(["a", "b", "c", "é"])
scalars = st.sampled_from([None, True, False, 0, 1, 1.5, "", "1", "x"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(names, values, max_size=4)


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def typed(value: bytes) -> Any:
    """The value with its types, for Python holds that True == 1 and 1 == 1.0."""

    def tagged(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {name: tagged(part) for name, part in inner.items()}
        if isinstance(inner, list):
            return [tagged(part) for part in inner]
        return (isinstance(inner, bool), inner)

    return tagged(json.loads(value))


# rule delta-5: what a patch says


@rule("delta-2")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"{}", b'{"a":{"b":{"c":null}}}'),
        (b"1", b"{}"),
        (b"{}", b"1"),
        (b"[1]", b"[1]"),
        (b"1", b"1"),
    ],
)
def test_what_a_patch_cannot_say_needs_the_value(old: bytes, new: bytes) -> None:
    assert diff(old, new) is None


@given(objects, objects)
@examples(30)
def test_a_patch_leads_from_the_old_to_the_new(old: Any, new: Any) -> None:
    patch = diff(text(old), text(new))
    if patch is None:
        assert "null" in json.dumps(new)
        return
    once = apply(text(old), patch)
    assert typed(once) == typed(text(new))
    assert is_empty(patch) == (typed(text(old)) == typed(text(new)))
    assert apply(once, patch) == once


# RFC 7396


def test_numbers_keep_their_digits() -> None:
    assert apply(b'{"a":1.50,"b":{"c":1e2}}', b'{"b":{"d":0.10}}') == (
        b'{"a":1.50,"b":{"c":1e2,"d":0.10}}'
    )


@given(values, values)
@examples(25)
def test_a_patch_applied_twice_is_applied_once(value: Any, patch: Any) -> None:
    once = apply(text(value), text(patch))
    assert apply(once, text(patch)) == once


# rules delta-5 and delta-2: composition


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (b'{"a":1}', b'{"b":2}', b'{"a":1,"b":2}'),
        (b'{"a":1}', b'{"a":2}', b'{"a":2}'),
        (b'{"a":1}', b'{"a":null}', b'{"a":null}'),
        (b'{"a":null}', b'{"a":1}', b'{"a":1}'),
        (b'{"a":{"b":1}}', b'{"a":{"c":2}}', b'{"a":{"b":1,"c":2}}'),
        (b'{"a":{"b":1}}', b'{"a":{"b":null}}', b'{"a":{"b":null}}'),
        (b'{"a":{"b":1}}', b'{"a":null}', b'{"a":null}'),
        (b'{"a":{"b":1}}', b"{}", b'{"a":{"b":1}}'),
        (b"{}", b'{"a":{"b":null}}', b'{"a":{"b":null}}'),
        (b"5", b"6", b"6"),
        (b'{"a":1}', b"6", b"6"),
        # an object where something else was, or nothing
        (b'{"a":null}', b'{"a":{"b":1}}', None),
        (b'{"a":5}', b'{"a":{"b":1}}', None),
        (b'{"a":[]}', b'{"a":{}}', None),
        (b'{"x":{"a":null}}', b'{"x":{"a":{"b":1}}}', None),
        (b"5", b'{"b":1}', None),
    ],
)
def test_two_patches_become_one(first: bytes, second: bytes, both: bytes | None) -> None:
    assert compose(first, second) == both


@rule("delta-2")
def test_the_trap_of_null_and_then_an_object() -> None:
    """What was removed must not come back through a composition."""
    first, second = b'{"a":null}', b'{"a":{"b":1}}'
    assert apply(apply(b'{"a":{"c":2}}', first), second) == b'{"a":{"b":1}}'
    assert compose(first, second) is None


@rule("delta-5")
def test_a_field_that_changed_and_changed_back_is_in_the_delta() -> None:
    states = [b'{"k":1,"a":1,"b":1}', b'{"k":1,"a":2,"b":1}', b'{"k":1,"a":1,"b":1}']
    there, back = diff(states[0], states[1]), diff(states[1], states[2])
    assert there is not None
    assert back is not None
    assert compose(there, back) == b'{"a":1}'


@given(values, values, values)
@examples(40)
def test_the_composition_does_what_both_do(value: Any, first: Any, second: Any) -> None:
    both = compose(text(first), text(second))
    if both is not None:
        assert typed(apply(text(value), both)) == typed(
            apply(apply(text(value), text(first)), text(second))
        )


@given(st.lists(objects, min_size=3, max_size=5))
@examples(30)
def test_deltas_of_an_interval_lead_to_its_end(states: list[Any]) -> None:
    texts = [text(state) for state in states]
    together: bytes | None = b"{}"
    for old, new in itertools.pairwise(texts):
        step = diff(old, new)
        together = None if step is None or together is None else compose(together, step)
    if together is not None:
        assert typed(apply(texts[0], together)) == typed(texts[-1])


# rule delta-1: key fields


@pytest.mark.parametrize(
    ("patch", "value", "paths", "delta"),
    [
        (b'{"px":2}', b'{"id":7.0,"px":2}', ["/id"], b'{"id":7.0,"px":2}'),
        (b"{}", b'{"id":7,"px":2}', ["/id"], b'{"id":7}'),
        (b'{"px":2,"id":7}', b'{"id":7,"px":2}', ["/id"], b'{"id":7,"px":2}'),
        (b'{"a":{"c":1}}', b'{"a":{"b":7,"c":1,"d":1}}', ["/a/b"], b'{"a":{"b":7,"c":1}}'),
        (b'{"c":1}', b'{"a":{"b":7,"x":8},"c":1}', ["/a/b", "/a/x"], b'{"a":{"b":7,"x":8},"c":1}'),
        (b'{"c":1}', b'{"a":[7,8],"c":1}', ["$.a[0]"], b'{"a":[7,8],"c":1}'),
        (b'{"c":1}', b'{"c":1}', ["/id"], b'{"c":1}'),
        (b'{"c":1}', b'{"id":null,"c":1}', ["/id"], b'{"c":1}'),
        (b'{"c":1}', b'{"id":{"x":null},"c":1}', ["/id"], b'{"c":1}'),
        (b'{"id":{"x":null}}', b'{"id":{"y":1}}', ["/id"], b'{"id":{"y":1,"x":null}}'),
        (b'{"c":1}', b'{"id":3,"c":1}', ["/id/x"], b'{"c":1}'),
        (b"5", b"5", ["/id"], b"5"),
        (b"[5]", b"[5]", ["$[0]"], b"[5]"),
    ],
)
def test_a_delta_names_its_record(
    patch: bytes, value: bytes, paths: list[str], delta: bytes
) -> None:
    assert with_fields(patch, value, tuple(map(FieldPath.parse, paths))) == delta


@given(objects, objects)
@examples(25)
def test_key_fields_change_nothing(old: Any, new: Any) -> None:
    patch = diff(text(old), text(new))
    paths = tuple(map(FieldPath.parse, ["/a", "/b/c", "$.c[0]", "/a/b"]))
    if patch is not None:
        delta = with_fields(patch, text(new), paths)
        assert typed(apply(text(old), delta)) == typed(text(new))


@pytest.mark.parametrize(
    ("patch", "empty"), [(b"{}", True), (b" { } ", True), (b'{"a":{}}', False), (b"1", False)]
)
def test_only_a_patch_without_members_changes_nothing(patch: bytes, empty: bool) -> None:
    assert is_empty(patch) is empty
