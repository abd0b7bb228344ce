"""Cells of a record are those that its aggregates need, read by columns or one by one."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter.values import Scalar
from tidegate.keys.jsontext import exact
from tidegate.keys.projection import Projection
from tidegate.pipeline.views.cells import (
    WORD,
    CellReader,
    GroupRecords,
    are_decimals,
    decimals,
    numeral,
    values,
)


@rule("view-5")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, b"1"), (True, b"1"), (0.1, b"0.1"), ("2.50", b"2.5"), (2**63, b"9223372036854775808"),
        ("x", WORD), (math.nan, WORD), (math.inf, WORD), (1e300, b"1e+300"),
    ],
)  # fmt: skip
def test_a_number_is_the_decimal_that_it_shows(value: Scalar, text: bytes) -> None:
    assert numeral(value) == text


def test_columns_that_need_the_same_of_a_record_share_it() -> None:
    text = "[SUM(/v) AS /s,AVG(/v) AS /a,MAX(/v) AS /m,/v,COUNT(/v) AS /n]"
    projection = Projection.parse(text, 0, "[/g,/h]", 0)
    reader = CellReader(projection)
    assert [reader.place(column) for column in projection.columns] == [2, 2, 3, 4, 3]
    bodies = [b'{"g":"X","v":"1.50"}', b'{"h":null,"v":""}']
    assert reader.count == 5
    assert [column.to_pylist() for column in reader.columns(bodies)] == [
        [b'"X"', None],
        [None, b"null"],
        [b"1.5", None],
        [b'"1.50"', None],
        [b'"1.50"', b'""'],
    ]


@rule("view-5")
def test_a_path_through_an_array_is_read_as_filters_read_it() -> None:
    projection = Projection.parse("[SUM(/a/b) AS /s,MAX(/a/b) AS /m,/a/b AS /f]", 0, "[/g]", 0)
    cells = CellReader(projection).columns([b'{"g":1,"a":[{"b":2},{"b":3}]}', b'{"a":{"b":4}}'])
    assert [column.to_pylist() for column in cells[1:]] == [
        [b"2", b"4"],
        [b"2", b"4"],
        [None, b"4"],
    ]


def test_records_of_a_group_stand_together_in_their_order() -> None:
    columns = {
        "group": list("babca"),
        "batch": [1, 1, 2, 2, 3],
        "file": ["f"] * 5,
        "block": [0] * 5,
        "position": [1, 2, 1, 2, 1],
        "cell_0": [b"1", b"2", None, b"4", b"5"],
    }
    found = GroupRecords.of(pa.table(columns))
    assert found.groups == ["b", "a", "c"]
    assert found.sizes.tolist() == [2, 2, 1]
    assert found.by_group(found.cells(0).to_pylist()) == [[b"1", None], [b"2", b"5"], [b"4"]]
    assert found.places(found.ends - 1) == [(2, "f", 0, 1), (3, "f", 0, 1), (2, "f", 0, 2)]


TEXTS = (
    "1", "-0", "1.50", "0.000001", "123456789012345", "1234567890123456", "1e3", "1E3", "null",
    '""', '"x"', '"12"', "true", "[1]", "[]", "{}", '"{"', '" "', "-1.25", "99999999999999",
)  # fmt: skip
texts = st.lists(st.one_of(st.none(), st.sampled_from(TEXTS)), max_size=6)


@rule("view-5")
@examples(40)
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
