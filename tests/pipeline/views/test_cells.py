from __future__ import annotations

import math

import pytest

from tests.support.rules import rule
from tidegate.keys.filter.values import Scalar
from tidegate.keys.projection import Projection
from tidegate.pipeline.views.cells import WORD, CellReader, numeral


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
