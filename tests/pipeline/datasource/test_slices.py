"""Slices of a journal, for tasks."""

from __future__ import annotations

from pipeline.datasource.options import ReadOptions
from pipeline.datasource.rows import shard_of
from pipeline.datasource.slices import JournalEdge, JournalSlice, read_slice
from tests.pipeline.journals import Journals, Removed


def test_each_shard_has_all_messages_of_its_keys_and_removals_too(journals: Journals) -> None:
    """Rule 526."""
    values = [b'{"n":%d}' % at for at in range(5)]
    journals.topic("t", [*values, Removed(b'["a"]'), Removed(b'["b"]')])
    options = ReadOptions(journals.address, "t", shards=3)
    parts = JournalEdge(options).slices("e-1-1", "e-1-7")
    assert parts == [JournalSlice("e-1", 1, 7, shard, 3) for shard in range(3)]
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
    assert JournalEdge(ReadOptions(journals.address, "t", shards=3)).slices("e-1-1", "e-1-1") == []
    assert JournalEdge(ReadOptions(journals.address, "t")).slices("e-1-1", "e-1-1") == []
