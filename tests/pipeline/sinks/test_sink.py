""""""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.sinks import sink as module
from tidegate.pipeline.sinks.sink import Batch, DeadLetterFile, DeadLetters, wait_until


def test_labels_of_batches_sort_in_the_order_of_batches() -> None:
    batches = [Batch(number, 1, "q", is_end=end) for number in (0, 9, 10) for end in (False, True)]
    labels = [batch.label for batch in batches]
    for ending in ("", ".parquet", ".ndjson"):
        names = [label + ending for label in labels]
        assert names == sorted(names)
    assert labels[-2:] == ["000000010", "000000010_end"]


def test_a_moment_is_waited_for_if_it_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + sum(slept_s), sleep=slept_s.append)
    monkeypatch.setattr(module, "time", clock)
    assert wait_until(107.0) == 7
    assert wait_until(107.0) == wait_until(50.0) == 0
    assert slept_s == [7, 0, 0]


BATCH = Batch(7, 1, "q")


def rows(*refused: str | None, file: str = "0\0file:/in/x") -> list[dict[str, Any]]:
    return [
        {"file": file, "block": 0, "position": at, "value": b"\xff{", "messages": 1, "refused": why}
        for at, why in enumerate(refused)
    ]


def refused_lines_in(
    folder: Path, batch: Batch, attempt: int, *refused: str | None, file: str
) -> int:
    letters_file = DeadLetterFile(DeadLetters(str(folder)), batch, attempt)
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
