"""Headers of CSV: what stands first in a file is none of its rows, and must say the columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.pipeline.errors import HistoryInvalid
from tidegate.pipeline.sources.files import without_headers

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("block", pa.int64()),
        ("position", pa.int64()),
        ("line", pa.binary()),
    ]
)
NAMES = ["k", "a;b", "_c2"]


def batch(*rows: tuple[str, int, bytes]) -> pa.RecordBatch:
    said = [{"file": file, "block": block, "line": line} for file, block, line in rows]
    return pa.RecordBatch.from_pylist(said, schema=SCHEMA)


def test_the_first_line_of_each_file_is_its_header() -> None:
    batches = [
        batch(("a", 0, b'K;"a;b";'), ("a", 0, b"1"), ("a", 9, b"2")),
        batch(("b", 0, b" "), ("b", 0, b"")),
        batch(("b", 0, b'k;"a;b";_c2'), ("b", 0, b'k;"a;b";_c2')),
        batch(("b", 0, b"5")),
    ]
    found = [
        row for piece in without_headers(iter(batches), NAMES, ";") for row in piece.to_pylist()
    ]
    assert [tuple(row.values()) for row in found] == [
        ("a", 0, 2, b"1"),
        ("a", 9, 1, b"2"),
        ("b", 0, 4, b'k;"a;b";_c2'),
        ("b", 0, 5, b"5"),
    ]


@rule("pipeline-7")
@pytest.mark.parametrize("line", [b'"a;b";k;', b"k;a;b;", b'k;"a;b"', b'\xff;"a;b";', b'"k'])
def test_another_header_is_told(line: bytes) -> None:
    with pytest.raises(HistoryInvalid, match=r"^b\.csv, line 1: the header is .*, expected k;a;b;"):
        list(without_headers(iter([batch(("0\0in/b.csv", 0, line))]), NAMES, ";"))
