"""Columns of texts say what the closures say, or that they do not know."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.jsontext import exact
from tidegate.keys.projection import Projection
from tidegate.pipeline.views.cells import WORD, are_decimals, decimals, numeral, values

TEXTS = (
    "1", "-0", "1.50", "0.000001", "123456789012345", "1234567890123456", "1e3", "1E3", "null",
    '""', '"x"', '"12"', "true", "[1]", "[]", "{}", '"{"', '" "', "-1.25", "99999999999999",
)  # fmt: skip
texts = st.lists(st.one_of(st.none(), st.sampled_from(TEXTS)), max_size=6)


@rule("view-5")
@examples(300, nightly=5_000)
@given(texts)
def test_a_column_is_what_each_text_is(found: list[str | None]) -> None:
    [column] = Projection.parse("[SUM(/v) AS /x]", 0, "[/g]", 0).columns
    bodies = [b"{}" if text is None else f'{{"v":{text}}}'.encode() for text in found]
    cells = [column.cell(body) for body in bodies]
    array = pa.array([None if text is None else text.encode() for text in found], pa.binary())
    said = values(array)
    if said is not None:
        assert said.to_pylist() == [cell and cell.text for cell in cells]
    counted = decimals(array)
    if counted is not None:
        for one, cell in zip(counted.to_pylist(), cells, strict=True):
            assert (one is None) == (cell is None)
            assert one is None or exact(one) == exact(numeral(cell.value))  # type: ignore[union-attr]  # it has a cell


@pytest.mark.parametrize(
    ("found", "is_sure"),
    [([], True), (["1", None, "-2.50"], True), (["1e3"], False), (["1234567890.123456"], False),
     ([WORD.decode()], False), (["true"], False)],
)  # fmt: skip
def test_short_decimals_are_sure(found: list[str | None], is_sure: bool) -> None:
    array = pa.array([None if text is None else text.encode() for text in found], pa.binary())
    assert are_decimals(array) is is_sure
