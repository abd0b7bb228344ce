from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.pipeline.sinks.drafts import ROWS, drafted
from tidegate.pipeline.sinks.parquet import COLUMNS


def test_a_row_tells_what_was_sent_and_where_it_comes_from(tmp_path: Path) -> None:
    [report] = drafted(tmp_path, ROWS).report().to_pylist()
    unfinished = str(tmp_path / ".s-q-7.3.0")
    assert report == {"messages": 6, "written": 2, "refused": 1, "unfinished": unfinished}
    table = pq.ParquetFile(unfinished).read()
    assert table.schema.equals(COLUMNS)
    first, second = table.to_pylist()
    assert first == {
        "batch": 7,
        "row": 1,
        "key": '["a"]',
        "value": '{"k":"a"}',
        "removed": None,
        "messages": 4,
        "first_ms": 17,
        "due_ns": 18_000_000,
        "file": "file:/in/x",
        "block": 3,
        "position": 9,
    }
    told = {name: second[name] for name in ("row", "key", "value", "removed", "file")}
    assert told == {"row": 2, "key": '["b"]', "value": None, "removed": "deleted", "file": None}
    assert (tmp_path / "dead" / "batch-000000007.ndjson").exists()


def test_readers_pass_over_a_draft(tmp_path: Path) -> None:
    for attempt in range(2):
        drafted(tmp_path, ROWS[:2], attempt)
    assert pq.read_table(tmp_path).num_rows == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_to_tell_is_no_file(tmp_path: Path) -> None:
    [report] = drafted(tmp_path, ROWS[2:]).report().to_pylist()
    assert report == {"messages": 1, "written": 0, "refused": 1, "unfinished": None}
    assert [path.name for path in tmp_path.iterdir()] == ["dead"]
