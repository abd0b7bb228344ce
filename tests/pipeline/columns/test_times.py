"""Times of many messages are read as each by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.times import TimeField, Unit

FIELD = FieldPath.parse("/t")
times = st.one_of(
    st.integers(0, 4_000_000_000), st.floats(0, 4e9), st.just("2013-10-08T09:30:00.5Z")
)


@examples(20)
@given(st.sampled_from(Unit), st.lists(times, min_size=1, max_size=5))
def test_many_times_are_read_as_each_by_itself(unit: Unit, found: list[int | float | str]) -> None:
    field = TimeField(FIELD, unit)
    assert field.column_ns(found).tolist() == [field.ns(each) for each in found]


OUT_OF_RANGE = [1e300, 2**63, "0001-01-01T00:00:00Z", "1677-01-01", "2263-01-01T00:00:00Z"]


@pytest.mark.parametrize("found", [None, True, [1], "soon", *OUT_OF_RANGE])
def test_what_is_no_time_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match=r"time|isoformat"):
        TimeField(FIELD).ns(found)
