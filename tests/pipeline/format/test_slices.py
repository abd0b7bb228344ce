"""Slices of a journal, for tasks."""

from __future__ import annotations

import pytest

from tests.pipeline.journals import Journals, Removed
from tests.support.rules import rule
from tidegate.pipeline.definitions.terms import RECORDS
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.format.envelope import shard_of
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.format.reader import JournalEdge, JournalSlice, read_slice


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
def test_what_was_trimmed_is_told_by_the_records_that_there_still_are(journals: Journals) -> None:
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


def test_records_of_another_life_are_lost(journals: Journals) -> None:
    topic = journals.topic("t", [b"1"])
    topic.records = {b'["a"]': (1, b"1")}
    options = ReadOptions(journals.address, "t", start=RECORDS)
    with pytest.raises(SourceLost, match="epoch e0"):
        list(read_slice(options, JournalSlice("e0", 0, 1, trimmed=True)))
