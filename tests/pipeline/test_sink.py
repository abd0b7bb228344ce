from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline import sink
from pipeline.conflate import ARROW_ROWS
from pipeline.errors import GatewayRefused
from pipeline.gateway import Gateway
from pipeline.sink import BatchWriting, TopicWriter, require_sink
from tests.pipeline.journals import Journals

PRODUCER = "tidegate.pipeline.s.0a"


def winners(count: int, refused: int = 0) -> pa.RecordBatch:
    rows = [
        {"part": "0\0file:/in/x.ndjson\0" + "0", "row": at, "line": b"%d" % at, "messages": 2}
        for at in range(count + refused)
    ]
    for row in rows[count:]:
        row |= {"reason": "message-invalid: not JSON", "messages": 1, "line": b"\xff{"}
    return pa.RecordBatch.from_pylist(rows, schema=ARROW_ROWS)


def write(
    journals: Journals, folder: Path, batch_id: int, rows: pa.RecordBatch, not_before_ms: int = 0
) -> dict[str, int]:
    writer = TopicWriter(journals.address, "newest", PRODUCER, str(folder / "dead"))
    with Gateway(journals.address) as gateway:
        writing = BatchWriting(writer, gateway, batch_id, not_before_ms)
        writing.take(rows)
        writing.end()
    [receipt] = writing.receipt_batch().to_pylist()
    return dict(receipt)


def test_a_batch_is_published_in_numbered_chunks(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "CHUNK_MESSAGES_MAX", 4)
    topic = journals.topic("newest")
    receipt = write(journals, tmp_path, 3, winners(10))
    assert topic.values == [b"%d" % at for at in range(10)]
    numbers = [publication.sequence for publication in topic.publications]
    assert numbers == [3 * 2**20 + 1, 3 * 2**20 + 2, 3 * 2**20 + 3]
    assert {publication.producer for publication in topic.publications} == {PRODUCER}
    assert (receipt["messages"], receipt["published"], receipt["repeated"]) == (20, 10, 0)


def test_a_chunk_is_bounded_in_bytes(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "CHUNK_BYTES_MAX", 5)
    topic = journals.topic("newest")
    write(journals, tmp_path, 0, winners(5))
    assert [len(publication.values) for publication in topic.publications] == [2, 2, 1]


def test_a_replayed_batch_publishes_only_what_was_not_sent(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "CHUNK_MESSAGES_MAX", 4)
    topic = journals.topic("newest")
    with Gateway(journals.address) as gateway:
        gateway.publish("newest", b"0\n1\n2\n3\n", PRODUCER, 1)
    receipt = write(journals, tmp_path, 0, winners(6))
    assert topic.values == [b"%d" % at for at in range(6)]
    assert (receipt["published"], receipt["repeated"]) == (2, 4)


def test_lines_that_are_no_records_are_written_down_once(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    for _ in range(2):
        receipt = write(journals, tmp_path, 7, winners(1, refused=2))
    assert receipt["refused"] == 2
    [letters] = (tmp_path / "dead").iterdir()
    assert letters.name == "batch-000000007.ndjson"
    assert [json.loads(line) for line in letters.read_bytes().splitlines()] == [
        {"reason": "message-invalid: not JSON", "file": "file:/in/x.ndjson", "row": at}
        | {"line": "\\xff{"}
        for at in (1, 2)
    ]
    assert topic.values == [b"0"]


def test_nothing_is_sent_before_its_time(journals: Journals, tmp_path: Path) -> None:
    journals.topic("newest")
    not_before_ms = time.time_ns() // 1_000_000 + 150
    assert write(journals, tmp_path, 0, winners(1), not_before_ms)["sent_at_ms"] >= not_before_ms


def test_a_batch_without_rows_sends_nothing(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    assert write(journals, tmp_path, 0, winners(0))["sent_at_ms"] == 0
    assert topic.publications == []


def test_a_sink_topic_is_created_once_and_kept_if_its_key_is_the_streams(
    journals: Journals,
) -> None:
    with Gateway(journals.address) as gateway:
        require_sink(gateway, "newest", {"key": ["/a"], "description": "made"})
        require_sink(gateway, "newest", {"key": ["/a"], "description": "other"})
        assert journals.topics["newest"].definition["description"] == "made"
        with pytest.raises(GatewayRefused, match=r"exists with key \['/a'\]"):
            require_sink(gateway, "newest", {"key": ["/b"]})
