"""Entries of a Redis stream are read in order, and lost entries are an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.pipeline.read_out import bodies, drained
from tests.support.rules import rule
from tidegate.pipeline.columns.blocks import pieces
from tidegate.pipeline.definitions.source import RedisSource
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.format import options as options_module
from tidegate.pipeline.redis_server import RedisServer
from tidegate.pipeline.sources.redis_entries import BEGINNING, ENTRIES_PER_PAGE, Entries
from tidegate.pipeline.sources.redis_stream import EntriesReader, EntriesSlice, read_redis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def source(redis_url: str, redis: Redis) -> RedisSource:
    return RedisSource(redis_url, "ticks", "epoch", None, None)


def reader(source: RedisSource) -> EntriesReader:
    options = {"url": source.address, "stream": source.stream, "from": source.start}
    options["field"] = source.field or ""
    return EntriesReader({**options, "cores": "3"})


def add(redis: Redis, low: int, high: int) -> None:
    for at in range(low, high):
        redis.xadd("ticks", {"k": at % 3, "n": at}, id=f"{1_700_000_000_000 + at}-0")


@pytest.mark.redis
@pytest.mark.spark
@pytest.mark.nightly
def test_entries_are_one_piece_in_order_whatever_batches_and_runs_they_come_in(
    spark: SparkSession, source: RedisSource, redis: Redis, tmp_path: Path
) -> None:
    asked = replace(source, rows_per_batch=30)
    add(redis, 0, 100)
    rows = drained(read_redis(spark, asked, tmp_path), tmp_path)
    assert [row.position for row in rows] == list(range(1, 101))
    assert {(row.file, row.block, row.key) for row in rows} == {("ticks", 0, None)}
    assert [row.time_ms for row in rows] == [1_700_000_000_000 + at for at in range(100)]
    assert bodies(rows) == [f'{{"k":"{at % 3}","n":"{at}"}}' for at in range(100)]
    add(redis, 100, 110)
    redis.xtrim("ticks", maxlen=11, approximate=False)
    rows = drained(read_redis(spark, asked, tmp_path), tmp_path)
    assert [row.position for row in rows] == list(range(101, 111))


@pytest.mark.redis
@rule("pipeline-6")
def test_entries_that_are_gone_before_they_are_read_are_an_error(
    source: RedisSource, redis: Redis
) -> None:
    add(redis, 0, 10)
    opened = reader(source)
    limit = opened.getDefaultReadLimit()
    read = opened.latestOffset(opened.initialOffset(), limit)
    add(redis, 10, 20)
    redis.xtrim("ticks", maxlen=11, approximate=False)
    assert opened.latestOffset(read, limit) == {"id": "1700000000019-0", "entries": 20}
    redis.xtrim("ticks", maxlen=10, approximate=False)
    with pytest.raises(
        SourceLost, match="Redis stream ticks no longer holds entry 1700000000009-0, which"
    ):
        opened.latestOffset(read, limit)


@pytest.mark.redis
def test_a_field_holds_the_message_and_one_without_it_is_no_record(
    source: RedisSource, redis: Redis
) -> None:
    redis.xadd("ticks", {"json": b'{"k":1}', "other": b"x"})
    redis.xadd("ticks", {"other": b"x"})
    redis.xadd("ticks", {"json": b"\xff", "other": b"x"})
    opened = reader(replace(source, field="json"))
    start = opened.initialOffset()
    end = opened.latestOffset(start, opened.getDefaultReadLimit())
    pages = (page for part in opened.partitions(start, end) for page in opened.read(part))
    bodies = [body for _, _, piece in pieces(pages) for body in piece["body"].to_pylist()]
    assert bodies == [b'{"k":1}', b"null", b"\xff"]


@pytest.mark.redis
def test_a_stream_begins_at_from(source: RedisSource, redis: Redis) -> None:
    assert reader(source).initialOffset() == {"id": "0-0", "entries": 0}
    assert reader(replace(source, start="now")).initialOffset()["id"] == "0-0"
    add(redis, 0, 2)
    now = reader(replace(source, start="now")).initialOffset()
    assert now == {"id": "1700000000001-0", "entries": 0}
    first = "1700000000000-0"
    assert reader(replace(source, start=first)).initialOffset() == {"id": first, "entries": 0}
    with pytest.raises(SourceLost, match="from = '7-0' is not an entry of Redis stream ticks"):
        reader(replace(source, start="7-0")).initialOffset()


@pytest.mark.redis
def test_a_batch_is_cut_into_slices_that_know_how_many_they_are(
    source: RedisSource, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_module, "ROWS_PER_TASK", 1)
    add(redis, 0, 10)
    opened = reader(source)
    start = opened.initialOffset()
    end = opened.latestOffset(start, opened.getDefaultReadLimit())
    assert end == {"id": "1700000000009-0", "entries": 10}
    slices = opened.partitions(start, end)
    assert [part.rows for part in slices if isinstance(part, EntriesSlice)] == [4, 4, 2]
    pages = (page for part in slices for page in opened.read(part))
    rows = [row for _, _, piece in pieces(pages) for row in piece.to_pylist()]
    assert [row["position"] for row in rows] == list(range(1, 11))
    assert opened.partitions(end, end) == []


@pytest.mark.redis
@rule("pipeline-6")
def test_a_repeated_batch_with_fewer_entries_is_an_error(source: RedisSource, redis: Redis) -> None:
    add(redis, 0, 10)
    opened = reader(source)
    start = opened.initialOffset()
    end = opened.latestOffset(start, opened.getDefaultReadLimit())
    [planned] = opened.partitions(start, end)
    redis.xdel("ticks", "1700000000004-0")
    with pytest.raises(SourceLost, match="no longer holds all entries after 0-0"):
        list(opened.read(planned))
    with pytest.raises(SourceLost, match="no longer holds all entries after 1700000000009-0"):
        opened.partitions(start, end)


@pytest.fixture
def entries(redis_url: str, redis: Redis) -> Iterator[Entries]:
    with RedisServer(redis_url) as server:
        yield Entries(server, "ticks")


def add_entry(redis: Redis, low: int, high: int) -> None:
    with redis.pipeline() as commands:
        for at in range(low, high):
            commands.xadd("ticks", {"n": at}, id=f"{at}-0")
        commands.execute()


@pytest.mark.redis
def test_what_lies_between_two_ids_is_counted_and_read(entries: Entries, redis: Redis) -> None:
    assert (entries.last(), entries.step(BEGINNING, "+", 10)) == (BEGINNING, (0, BEGINNING))
    rows = 2 * ENTRIES_PER_PAGE + 5
    add_entry(redis, 1, rows + 1)
    assert entries.last() == f"{rows}-0"
    assert entries.step(BEGINNING, "+", 2 * rows) == (rows, f"{rows}-0")
    assert entries.step("3-0", "+", ENTRIES_PER_PAGE + 1) == (1_001, "1004-0")
    assert entries.step("3-0", "7-0", 100) == (4, "7-0")
    assert entries.step(f"{rows}-0", "+", 5) == (0, f"{rows}-0")
    read = [fields[b"n"] for page in entries.pages("3-0", "2000-0") for _, fields in page]
    assert read == [b"%d" % at for at in range(4, 2001)]


@pytest.mark.redis
@rule("pipeline-6")
def test_an_entry_that_was_read_last_must_be_there_or_be_the_newest(
    entries: Entries, redis: Redis
) -> None:
    entries.require(BEGINNING)
    add_entry(redis, 1, 10)
    redis.xtrim("ticks", minid="5-0", approximate=False)
    entries.require("5-0")
    with pytest.raises(SourceLost, match="no longer holds entry 4-0") as caught:
        entries.require("4-0")
    assert "\n" not in str(caught.value)
    redis.xtrim("ticks", maxlen=0, approximate=False)
    entries.require("9-0")
    redis.delete("ticks")
    with pytest.raises(SourceLost):
        entries.require("9-0")
