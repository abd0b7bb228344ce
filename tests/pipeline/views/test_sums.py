"""Sums over columns are those of one number after the other, to the last digit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.jsontext import exact
from tidegate.keys.projection import Moments
from tidegate.pipeline.views.partials import moments

decimals = st.one_of(
    st.integers(-(2**63), 2**64).map(str),
    st.integers(-99, 99).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-9999, 9999, places=3).map(str),
)


def one_by_one(groups: list[list[str]], *, squared: bool) -> list[Moments]:
    numbers = [[exact(text.encode()) or 0 for text in group] for group in groups]
    return [Moments.of(found, squared=squared) for found in numbers]


@pytest.mark.parametrize("squared", [False, True])
@examples(200, nightly=5_000)
@given(st.lists(st.lists(decimals, min_size=1, max_size=5), min_size=1, max_size=4))
def test_columns_sum_exactly(squared: bool, groups: list[list[str]]) -> None:
    texts = pa.array([text.encode() for group in groups for text in group], pa.binary())
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    assert moments(texts, starts, squared=squared) == one_by_one(groups, squared=squared)


@pytest.mark.parametrize(
    "texts",
    [
        ["0.1"] * 10,
        ["123456789012345", "-0.5"],
        ["99999999999999.9", "0.1"],
        ["999999999999999"] * 9_300,
        ["4000000000"] * 3,
        ["1e+16", "-1e+16", "1"],
    ],
)
def test_what_a_column_cannot_hold_is_exact_too(texts: list[str]) -> None:
    column = pa.array([text.encode() for text in texts], pa.binary())
    for squared in (False, True):
        [found] = moments(column, np.array([0]), squared=squared)
        assert found == one_by_one([texts], squared=squared)[0]
        assert found.total == sum(map(Fraction, texts))
