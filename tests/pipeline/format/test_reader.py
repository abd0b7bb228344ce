"""What a reader plans and reads, batch by batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.pipeline.journals import Journals, Removed
from tests.support.rules import rule
from tidegate.pipeline.columns.rows import shard_of
from tidegate.pipeline.definitions.toml import RECORDS
from tidegate.pipeline.errors import (
    CheckpointUnusable,
    DefinitionInvalid,
    GatewayRefused,
    SourceLost,
)
from tidegate.pipeline.format import journal
from tidegate.pipeline.format import options as options_module
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.format.reader import (
    JournalEdge,
    JournalReader,
    JournalSlice,
    JournalStreamReader,
    read_slice,
)

LINES = [b'{"n":%d}' % at for at in range(1, 11)]


def options(journals: Journals, **given: str) -> ReadOptions:
    return ReadOptions.of({"gateway": journals.address, "topic": "t", **given})


def reader(journals: Journals, **given: str) -> JournalStreamReader:
    return JournalStreamReader(options(journals, **given))


def at(position: int, epoch: str = "e1") -> dict[str, str]:
    return {"bookmark": f"{epoch}-{position}"}


def read(journals: Journals, start: dict[str, str], end: dict[str, str]) -> list[int]:
    stream = reader(journals)
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_batch_is_at_most_as_long_as_the_limit(journals: Journals) -> None:
    journals.topic("t", LINES)
    stream = reader(journals, rows_per_batch="4")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    assert stream.initialOffset() == at(0)
    assert stream.reportLatestOffset() is None
    assert stream.latestOffset(at(0), limit) == at(4)
    assert stream.reportLatestOffset() == {**at(10), "first": "e1-1"}
    assert stream.latestOffset(at(8), limit) == at(10)
    assert stream.latestOffset(at(10), limit) == at(10)
    assert stream.latestOffset(at(0), ReadAllAvailable()) == at(10)
    assert isinstance(reader(journals).getDefaultReadLimit(), ReadAllAvailable)


@rule("cluster-16")
def test_an_epoch_that_continues_another_is_read_on(journals: Journals) -> None:
    topic = journals.topic("t", LINES)
    stream = reader(journals)
    planned = stream.latestOffset(at(0), ReadMaxRows(5))
    topic.epoch, topic.continues = "e2", {"e1": 8}
    assert read(journals, at(0), planned) == [1, 2, 3, 4, 5]  # as it was planned
    assert stream.latestOffset(planned, ReadMaxRows(4)) == at(9, "e2")
    assert read(journals, planned, at(9, "e2")) == [6, 7, 8, 9]
    with pytest.raises(SourceLost, match="another epoch"):
        stream.latestOffset(at(9), ReadMaxRows(4))


@rule("pipeline-6")
def test_where_a_stream_begins_is_noted_before_anything_is_planned(
    journals: Journals, tmp_path: Path
) -> None:
    """Spark asks again if the first batch was planned and not done."""
    topic, file = journals.topic("t", LINES), tmp_path / "checkpoint" / "start.t"

    def started() -> JournalStreamReader:
        return JournalStreamReader(replace(options(journals), start_file=str(file)))

    stream = started()
    planned = stream.latestOffset(stream.initialOffset(), ReadMaxRows(5))
    topic.trimmed = 3
    stream = started()
    start = stream.initialOffset()
    assert (start, planned) == (at(0), at(5))
    [part] = stream.partitions(start, planned)
    with pytest.raises(SourceLost, match="positions 1 to 3 left the journal"):
        list(stream.read(part))
    file.write_text("{")
    with pytest.raises(CheckpointUnusable, match="is not whole"):
        started().initialOffset()


@pytest.mark.parametrize("start", ["now", "e1-10"])
def test_where_nothing_is_to_be_read_there_are_no_rows(journals: Journals, start: str) -> None:
    """Spark makes up a partition then."""
    journals.topic("t", LINES)
    journal = JournalReader(options(journals, **{"from": start}))
    assert journal.partitions() == []
    assert list(journal.read(InputPartition(None))) == []


def test_what_comes_after_the_start_is_no_part_of_available_now(journals: Journals) -> None:
    journals.topic("t", LINES)
    stream = reader(journals)
    stream.prepareForTriggerAvailableNow()
    journals.topic("t", LINES)
    assert stream.latestOffset(at(3), ReadAllAvailable()) == at(10)
    assert stream.latestOffset(at(10), ReadAllAvailable()) == at(10)


@pytest.mark.parametrize(
    ("given", "expected"), [("epoch", at(2)), ("now", at(10)), ("e1-7", at(7))]
)
def test_a_stream_starts_at_from(journals: Journals, given: str, expected: dict[str, str]) -> None:
    journals.topic("t", LINES).trimmed = 2
    assert reader(journals, **{"from": given}).initialOffset() == expected


@pytest.mark.parametrize("gives_epoch", [True, False])
@pytest.mark.parametrize("given", ["epoch", "now"])
def test_a_stream_on_an_empty_topic_starts_with_its_first_message(
    journals: Journals, given: str, gives_epoch: bool
) -> None:
    journals.gives_epoch = gives_epoch
    journals.topic("t")
    stream = reader(journals, **{"from": given})
    start = stream.initialOffset()
    assert start == (at(0) if gives_epoch else {"bookmark": "epoch"})
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    assert stream.partitions(start, start) == []
    journals.topic("t", LINES)
    end = stream.latestOffset(start, ReadMaxRows(3))
    assert end == at(3)
    assert read(journals, start, end) == [1, 2, 3]


def test_a_batch_is_cut_into_slices_and_pages_without_gaps(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_module, "ROWS_PER_TASK", 4)
    monkeypatch.setattr(journal, "MESSAGES_PER_REQUEST_MAX", 2)
    journals.topic("t", LINES)
    assert len(reader(journals).partitions(at(1), at(10))) == 3
    assert read(journals, at(1), at(10)) == list(range(2, 11))


def test_another_epoch_of_the_topic_is_an_error(journals: Journals) -> None:
    topic = journals.topic("t", LINES)
    topic.epoch = "e2"
    with pytest.raises(SourceLost, match=r"another epoch of topic t \(epoch e1, now e2\)"):
        reader(journals).latestOffset(at(3), ReadAllAvailable())
    topic.values.clear()
    journals.gives_epoch = False
    with pytest.raises(SourceLost, match=r"another epoch of topic t \(epoch e1, now that of an"):
        reader(journals).latestOffset(at(3), ReadAllAvailable())


def test_lost_messages_are_an_error(journals: Journals) -> None:
    topic = journals.topic("t", LINES)
    [part] = reader(journals).partitions(at(0), at(10))
    topic.trimmed = 1
    with pytest.raises(SourceLost, match="expected position 1"):
        list(reader(journals).read(part))
    with pytest.raises(SourceLost, match="ends at position 10, before position 11"):
        reader(journals).latestOffset(at(11), ReadAllAvailable())
    [part] = reader(journals).partitions(at(2), at(10))
    topic.trimmed = 5
    with pytest.raises(SourceLost, match=r"topic t no .* 3 messages .* 3 to 5: .*history"):
        list(reader(journals).read(part))
    topic.epoch = "e2"
    with pytest.raises(SourceLost, match=r"topic t began again .*\(epoch e1, now e2\)"):
        list(reader(journals).read(part))
    topic.epoch = "e1"
    [part] = reader(journals).partitions(at(5), at(10))
    topic.values = LINES[:7]
    with pytest.raises(SourceLost, match="no longer holds the messages after position 7"):
        list(reader(journals).read(part))


def test_a_start_or_topic_that_is_not_there_is_refused(journals: Journals) -> None:
    with pytest.raises(GatewayRefused, match="has no topic t"):
        reader(journals).initialOffset()
    journals.topic("t", LINES)
    with pytest.raises(DefinitionInvalid, match="epoch, now, records or a bookmark"):
        reader(journals, **{"from": "then"}).initialOffset()
    no_such = "from = 'e0-7' is not a bookmark of topic t, whose epoch is e1"
    with pytest.raises(SourceLost, match=no_such):
        reader(journals, **{"from": "e0-7"}).initialOffset()
    with pytest.raises(SourceLost, match="'e1-11' is ahead of topic t, which ends at 10"):
        reader(journals, **{"from": "e1-11"}).initialOffset()


def test_a_batch_frame_has_all_that_the_journal_holds(journals: Journals) -> None:
    journals.topic("t", LINES).trimmed = 2
    once = JournalReader(options(journals))
    rows = [
        row for part in once.partitions() for batch in once.read(part) for row in batch["offset"]
    ]
    assert [row.as_py() for row in rows] == list(range(3, 11))
    assert JournalReader(options(journals, **{"from": "now"})).partitions() == []


def test_the_checkpoint_of_another_source_is_an_error(journals: Journals) -> None:
    journals.topic("t", LINES)
    with pytest.raises(CheckpointUnusable, match="offsets of another source"):
        reader(journals).latestOffset({"logOffset": "3"}, ReadAllAvailable())


@rule("publish-11")
def test_each_shard_has_all_messages_of_its_keys_and_removals_too(journals: Journals) -> None:
    values = [b'{"n":%d}' % at for at in range(5)]
    journals.topic("t", [*values, Removed(b'["a"]'), Removed(b'["b"]')])
    options = ReadOptions(journals.address, "t", shards=3)
    parts = JournalEdge(options).slices("e1-1", "e1-7")
    assert parts == [JournalSlice("e1", 1, 7, shard, 3) for shard in range(3)]
    read = {
        part.shard: [
            (row["offset"], row["key"])
            for batch in read_slice(options, part)
            for row in batch.to_pylist()
        ]
        for part in parts
    }
    keys = dict.fromkeys(range(2, 6), '["k"]') | {6: '["a"]', 7: '["b"]'}
    assert read == {
        shard: [(at, text) for at, text in keys.items() if shard_of(text, 3) == shard]
        for shard in range(3)
    }


def test_nothing_new_is_no_slice(journals: Journals) -> None:
    journals.topic("t", [b"1"])
    assert JournalEdge(ReadOptions(journals.address, "t", shards=3)).slices("e1-1", "e1-1") == []
    assert JournalEdge(ReadOptions(journals.address, "t")).slices("e1-1", "e1-1") == []


@rule("pipeline-13")
def test_trimmed_messages_come_as_their_records(journals: Journals) -> None:
    topic = journals.topic("t", [b"1", b"2", b"3", b"4"])
    topic.trimmed = 2
    topic.records = {b'["a"]': (1, b"1"), b'["b"]': (4, b"4")}
    options = ReadOptions(journals.address, "t", start=RECORDS)
    edge = JournalEdge(options)
    assert edge.initial() == "e1-0"
    parts = edge.slices("e1-0", "e1-4")
    assert parts == [JournalSlice("e1", 0, 2, trimmed=True), JournalSlice("e1", 2, 4)]
    rows = [
        row for part in parts for batch in read_slice(options, part) for row in batch.to_pylist()
    ]
    assert [(row["offset"], row["value"]) for row in rows] == [(1, "1"), (3, "3"), (4, "4")]
    assert edge.slices("e1-3", "e1-4") == [JournalSlice("e1", 3, 4)]


def test_a_journal_that_is_whole_or_empty_needs_no_records(journals: Journals) -> None:
    topic = journals.topic("t", [b"1"])
    edge = JournalEdge(ReadOptions(journals.address, "t", start=RECORDS))
    assert edge.slices("e1-0", "e1-1") == [JournalSlice("e1", 0, 1)]
    topic.trimmed = 1
    assert edge.slices("e1-0", "e1-1") == [JournalSlice("e1", 0, 1, trimmed=True)]


def test_records_of_another_epoch_are_lost(journals: Journals) -> None:
    topic = journals.topic("t", [b"1"])
    topic.records = {b'["a"]': (1, b"1")}
    options = ReadOptions(journals.address, "t", start=RECORDS)
    with pytest.raises(SourceLost, match="epoch e0"):
        list(read_slice(options, JournalSlice("e0", 0, 1, trimmed=True)))
