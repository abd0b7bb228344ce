"""States of reducers: each joins in order, however it is grouped (rule merge-7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.reducers import MONOIDS, Reducer, join

pytestmark = rule("merge-7")


TEXTS = (
    *(b"null", b"true", b"0", b"1", b"1.0", b"0.1", b"1e16", b"-1e16", b"1e400", b"1e999999999999"),
    *(b'"a"', b'"b"', b'""', b"[]", b"[1,2]", b'[null,"a"]', b'{"a":1}', b"0.3333333333"),
)
texts = st.none() | st.sampled_from(TEXTS)


@pytest.mark.parametrize("reducer", Reducer)
@given(one=texts, two=texts, three=texts)
@examples(150, nightly=5_000)
def test_grouping_makes_no_difference(
    reducer: Reducer, one: bytes | None, two: bytes | None, three: bytes | None
) -> None:
    monoid = MONOIDS[reducer]
    a, b, c = map(monoid.lift, (one, two, three))
    assert join(monoid, join(monoid, a, b), c) == join(monoid, a, join(monoid, b, c))


@pytest.mark.parametrize("reducer", [reducer for reducer in Reducer if reducer is not Reducer.LAST])
def test_a_missing_field_and_null_are_nothing(reducer: Reducer) -> None:
    monoid = MONOIDS[reducer]
    assert monoid.lift(None) is None
    assert monoid.lift(b"null") is None
    state = monoid.lift(b"1")
    assert join(monoid, None, state) == join(monoid, state, None) == state


def test_the_last_word_may_be_nothing() -> None:
    monoid = MONOIDS[Reducer.LAST]
    assert monoid.show(join(monoid, monoid.lift(b"1"), monoid.lift(None))) is None


@pytest.mark.parametrize("reducer", Reducer)
@given(one=texts, two=texts)
@examples(150, nightly=5_000)
def test_a_state_that_was_saved_goes_on(
    reducer: Reducer, one: bytes | None, two: bytes | None
) -> None:
    monoid = MONOIDS[reducer]
    state = join(monoid, monoid.lift(one), monoid.lift(two))
    if state is not None:
        assert monoid.load(monoid.save(state)) == state
