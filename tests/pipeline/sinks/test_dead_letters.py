"""Refused lines are written once, however often Spark repeats their batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.sinks.dead_letters import DeadLetterFile
from tidegate.pipeline.sinks.sink import Batch

BATCH = Batch(7, 1, "q")


def rows(*refused: str | None, file: str = "0\0file:/in/x") -> list[dict[str, Any]]:
    return [
        {"file": file, "block": 0, "position": at, "value": b"\xff{", "messages": 1, "refused": why}
        for at, why in enumerate(refused)
    ]


def refused_lines_in(
    folder: Path, batch: Batch, attempt: int, *refused: str | None, file: str
) -> int:
    letters_file = DeadLetterFile(str(folder), batch, attempt)
    letters_file.take(
        pa.RecordBatch.from_pylist(rows(*refused, file=file), schema=arrow_schema(SENT))
    )
    letters_file.end()
    return letters_file.count


def test_dead_letters_are_written_once_however_often_a_batch_comes(tmp_path: Path) -> None:
    for attempt in range(2):
        assert (
            refused_lines_in(tmp_path, BATCH, attempt, None, "not JSON", file="0\0file:/in/x") == 1
        )
    [letters] = tmp_path.iterdir()
    assert letters.name == "batch-000000007.ndjson"
    assert [json.loads(line) for line in letters.read_bytes().splitlines()] == [
        {"reason": "not JSON", "file": "file:/in/x", "row": 1, "line": "\\xff{"}
    ]


def test_what_came_from_a_topic_names_no_file(tmp_path: Path) -> None:
    refused_lines_in(tmp_path, replace(BATCH, is_end=True), 0, "key-missing", file="")
    assert json.loads((tmp_path / "batch-000000007_end.ndjson").read_bytes())["file"] is None


def test_nothing_refused_is_no_file(tmp_path: Path) -> None:
    assert refused_lines_in(tmp_path / "dead", BATCH, 0, None, file="") == 0
    assert not (tmp_path / "dead").exists()
