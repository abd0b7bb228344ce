"""The first line of a file is its header, and lines stay in order whatever is wrong with them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.pipeline.files.block_format import BlockFormat
from tidegate.pipeline.files.csv_lines import HeaderInvalidError, csv_rows
from tidegate.pipeline.files.objects import Field

FORMAT = BlockFormat("csv", tuple(Field(name, "string") for name in ("k", "a;b", "_c2")), ";")


def rows(*pieces: list[bytes], has_header: bool = True) -> list[tuple[int, bytes]]:
    """Return (index, body) of each row that is not blank."""
    arrays = [pa.array(piece, pa.binary()) for piece in pieces]
    return [
        (row + at, body)
        for row, bodies, _ in csv_rows(arrays, FORMAT, "", has_header=has_header)
        for at, body in enumerate(bodies.to_pylist())
    ]


def test_the_first_line_that_is_not_blank_is_the_header() -> None:
    header = b'K;"a;b";'
    assert rows([header, b"1;2;3"]) == [(1, b'{"k":"1","a;b":"2","_c2":"3"}')]
    assert rows([b" ", b""], [b"", header], [header]) == [(4, b'{"k":"K","a;b":"a;b"}')]
    assert rows([header, b"x"], has_header=False)[1] == (1, b"x")
    assert rows([b""]) == []


@rule("pipeline-7")
@pytest.mark.parametrize("line", [b'"a;b";k;', b"k;a;b;", b'k;"a;b"', b'\xff;"a;b";', b'"k'])
def test_another_header_is_an_error(line: bytes) -> None:
    with pytest.raises(HeaderInvalidError, match=r"^the header is .*, expected k;a;b;") as caught:
        rows([b"", line])
    assert caught.value.number == 2


@rule("pipeline-7")
def test_lines_stay_in_order_whatever_is_wrong_with_them() -> None:
    kinds = ("string", "double", "long")
    block_format = BlockFormat("csv", tuple(map(Field, "spn", kinds)))
    reason_by_line = {
        b"a,1,2": None,
        b"\xff,1,2": "not valid UTF-8",
        b" ": None,
        b"a": "does not match the columns s, p, n",
        b"a,x,y": "p is not of type double",
        b"a,Inf,y": "n is not of type long",
        b"a,Inf,1": "p is NaN or infinite",
        b'"a"b,1,2': "does not match the columns s, p, n",
        b'"a""b",1,2': None,
    }
    lines = pa.array([*reason_by_line], pa.binary())
    [(_, bodies, refused)] = csv_rows([lines], block_format, "", has_header=False)
    reasons = [why and f"message-invalid: {why}" for why in reason_by_line.values()]
    assert refused.to_pylist() == reasons
    objects = {b"a,1,2": b'{"s":"a","p":1.0,"n":2}'}
    objects[b'"a""b",1,2'] = b'{"s":"a\\"b","p":1.0,"n":2}'
    assert bodies.to_pylist() == [objects.get(line, line) for line in reason_by_line]


@rule("pipeline-7")
@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ('"a,b",c', ["a,b", "c"]),
        ('"a""b",', ['a"b', None]),
        ('5" pipe,"c"', ['5" pipe', "c"]),
        ('a, "b"', ["a", ' "b"']),
        ('"",""', [None, None]),
        ('"a"b,c', None),
        ('"a" ,c', None),
        ('a,"b', None),
        ('a,"', None),
        ("a", None),
        ("a,b,c", None),
    ],
)
@pytest.mark.parametrize("among", [[], [b'"x,",y']])
def test_a_line_with_malformed_quotes_or_another_number_of_cells_is_refused(
    line: str, cells: list[str | None] | None, among: list[bytes]
) -> None:
    block_format = BlockFormat("csv", (Field("a", "string"), Field("b", "string")))
    given = pa.array([*among, line.encode(), *among], pa.binary())
    [(_, bodies, refused)] = csv_rows([given], block_format, "", has_header=False)
    reason = None if cells else "message-invalid: does not match the columns a, b"
    assert refused[len(among)].as_py() == reason
    body = bodies[len(among)].as_py()
    if cells is None:
        assert body == line.encode()
    else:
        expected = dict(zip("ab", cells, strict=True))
        assert json.loads(body) == {name: cell for name, cell in expected.items() if cell}
    others = [*bodies[: len(among)], *bodies[len(among) + 1 :]]
    assert [json.loads(other.as_py()) for other in others] == [{"a": "x,", "b": "y"}] * len(others)


def test_a_cell_may_be_as_large_as_a_line() -> None:
    block_format = BlockFormat("csv", (Field("a", "string"), Field("b", "string")))
    line = b"a," + b"x" * 200_000
    [(_, _, refused)] = csv_rows(
        [pa.array([line], pa.binary())], block_format, "", has_header=False
    )
    assert refused.to_pylist() == [None]
