"""What is read of a topic becomes rows of an archive, texts as published."""

from __future__ import annotations

from tidegate.keys.archived import COLUMNS
from tidegate.pipeline.archive.writing import ROWS, archive_rows
from tidegate.pipeline.format.envelope import Row, row_batch


def test_rows_are_called_as_an_archive_calls_them() -> None:
    read = [Row(b'["a"]', b'{ "n":1.0 }', 7, None), Row(b'["a"]', None, 8, "expired")]
    found = archive_rows(row_batch(read, "e1", 4), "e1")
    assert found.schema.equals(ROWS)
    assert found.schema.names == list(COLUMNS)
    assert [list(row.values()) for row in found.to_pylist()] == [
        ["e1", 5, 7, '["a"]', '{ "n":1.0 }', None],
        ["e1", 6, 8, '["a"]', None, "expired"],
    ]
