"""What one task keeps aside."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.pipeline.journals import Journals
from tidegate.pipeline.format import writer as staging
from tidegate.pipeline.format.options import WriteOptions
from tidegate.pipeline.format.writer import stage_rows


def rows(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)})


def test_rows_go_to_stages_in_their_order(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "STAGE_MESSAGES_MAX", 2)
    topic = journals.topic("t")
    options = WriteOptions(journals.address, "t")
    staged = stage_rows(options, "p", [rows("1", "2"), rows("3"), rows("4", "5")])
    assert (staged.messages, len(staged.stages)) == (5, 3)
    assert [topic.stages[name] for name in staged.stages] == [[b"1", b"2"], [b"3", b"4"], [b"5"]]
    assert topic.values == []


def test_a_large_stage_is_cut_by_its_bytes(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "STAGE_BYTES_MAX", 10)
    topic = journals.topic("t")
    staged = stage_rows(WriteOptions(journals.address, "t"), "p", [rows("1234", "1234", "1" * 30)])
    assert [len(topic.stages[name]) for name in staged.stages] == [2, 1]


def test_two_attempts_have_no_stage_in_common(journals: Journals) -> None:
    topic = journals.topic("t")
    options = WriteOptions(journals.address, "t")
    once, again = (stage_rows(options, "p", [rows("1")]) for _ in range(2))
    assert len(topic.stages) == len({*once.stages, *again.stages}) == 2
    assert stage_rows(options, "p", []).stages == []
