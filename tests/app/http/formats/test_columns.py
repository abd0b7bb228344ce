"""Types of columns: the narrowest that keeps each value exact."""

from __future__ import annotations

import pytest

from tests.app.http.formats.reading import frames, payload
from tidegate.app.http.formats import columns
from tidegate.app.http.formats.columns import (
    Column,
    ColumnType,
    Kind,
    columns_in,
    declared_fields,
    names_in,
)
from tidegate.app.http.formats.records import BYTES_AT_ONCE
from tidegate.app.http.problems import HttpRefused
from tidegate.conflation.steps import finished

TYPES = {
    "nothing": (["null"], ColumnType(Kind.NULL)),
    "booleans": (["true", "null"], ColumnType(Kind.BOOLEAN)),
    "texts": (['"a"', '"1"'], ColumnType(Kind.STRING)),
    "integers": (["-1", "0", "null"], ColumnType(Kind.INT64)),
    "the least": ([str(-(2**63)), str(2**63 - 1)], ColumnType(Kind.INT64)),
    "unsigned": (["1", str(2**64 - 1)], ColumnType(Kind.UINT64)),
    "both ends": (["-1", str(2**64 - 1)], ColumnType(Kind.DECIMAL, 20, 0)),
    "beyond 64 bits": ([str(2**64)], ColumnType(Kind.DECIMAL, 20, 0)),
    "beyond 38 digits": (["1" + "0" * 38], ColumnType(Kind.JSON)),
    "fractions": (["1.5", "-0.25", "7"], ColumnType(Kind.DOUBLE)),
    "doubles": (["0.30000000000000004", "1e300", "5e-324"], ColumnType(Kind.DOUBLE)),
    "an integer that no double has": (["1.5", str(2**53 + 1)], ColumnType(Kind.DECIMAL, 17, 1)),
    "more digits": (["1.5", "0.1000000000000000055"], ColumnType(Kind.DECIMAL, 20, 19)),
    "digits at both ends": (["12345678901.5", "0.12345678901"], ColumnType(Kind.DOUBLE)),
    "powers": (["1.0e-1", "-15E-1", "2e3"], ColumnType(Kind.DOUBLE)),
    "powers that are rounded": (["123456789012345678e-3"], ColumnType(Kind.DECIMAL, 18, 3)),
    "next to nothing": (["1e-400"], ColumnType(Kind.JSON)),
    "nearly nothing": (["1e-9999999999999999999"], ColumnType(Kind.JSON)),
    "objects": (['{"a":1}', "[]"], ColumnType(Kind.JSON)),
    "several": (["1", '"1"'], ColumnType(Kind.JSON)),
    "true is no number": (["true", "1"], ColumnType(Kind.JSON)),
    "of an earlier version": (["1e400"], ColumnType(Kind.JSON)),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_keeps_all_values(name: str) -> None:
    """Whether they come in one piece, or in one for each, in either order."""
    values, wanted = TYPES[name]
    texts = [f'{{"n":{value}}}'.encode() for value in values]
    padded = [text + b" " * BYTES_AT_ONCE for text in texts]
    for records in (texts, texts[::-1], padded, padded[::-1]):
        assert finished(columns_in(frames(records), payload, {})) == {"n": wanted}


def test_known_columns_come_first_and_are_there_without_records() -> None:
    known = {"k": frozenset[type](), "n": frozenset({int}), "px": frozenset({float})}
    wanted = {"k": Kind.NULL, "n": Kind.INT64, "px": Kind.DOUBLE}
    found = finished(columns_in([], payload, known))
    assert {name: each.kind for name, each in found.items()} == wanted
    rows = frames([b'{"z":1,"n":0.5,"px":1}', b'{"a":2}'])
    found = finished(columns_in(rows, payload, known))
    assert [(name, each.kind) for name, each in found.items()] == [
        ("k", Kind.NULL),
        ("n", Kind.DOUBLE),
        ("px", Kind.DOUBLE),
        ("z", Kind.INT64),
        ("a", Kind.INT64),
    ]
    assert finished(names_in(rows, payload, known)) == ["k", "n", "px", "z", "a"]


def test_there_are_at_most_so_many_columns() -> None:
    texts = [b'{"a%d":1}' % number for number in range(columns.COLUMNS_MAX)]
    assert len(finished(names_in(frames(texts), payload, {}))) == columns.COLUMNS_MAX
    for scan in (names_in, columns_in):
        with pytest.raises(HttpRefused, match="over 1000 fields") as raised:
            finished(scan(frames([*texts, b'{"one":1}']), payload, {}))
        assert (raised.value.status, raised.value.headers) == (406, {"Vary": "Accept"})


def test_fields_that_a_schema_declares() -> None:
    schema = {
        "properties": {
            "n": {"type": "integer"},
            "px": {"type": ["number", "null"]},
            "is": {"type": "boolean"},
            "t": {"type": "string"},
            "o": {"type": "object"},
            "x": {"type": ["string", "integer"]},
            "any": True,
            "ref": {"$ref": "#/$defs/d"},
            "const": {"const": 1},
        }
    }
    kinds = {name: Column(each).type.kind for name, each in declared_fields(schema).items()}
    assert kinds == {
        "n": Kind.INT64,
        "px": Kind.DOUBLE,
        "is": Kind.BOOLEAN,
        "t": Kind.STRING,
        "o": Kind.JSON,
        "x": Kind.JSON,
        "any": Kind.NULL,
        "ref": Kind.NULL,
        "const": Kind.NULL,
    }
    assert [declared_fields(each) for each in (True, {}, {"type": "object"})] == [{}, {}, {}]
