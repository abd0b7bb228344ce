from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from tests.support.rules import rule
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.redis_server import RedisServer
from tidegate.pipeline.sources.redis_stream import BEGINNING, ENTRIES_PER_PAGE, Entries

pytestmark = pytest.mark.redis


@pytest.fixture
def entries(redis_url: str, redis: Redis) -> Iterator[Entries]:
    with RedisServer(redis_url) as server:
        yield Entries(server, "ticks")


def add(redis: Redis, low: int, high: int) -> None:
    with redis.pipeline() as commands:
        for at in range(low, high):
            commands.xadd("ticks", {"n": at}, id=f"{at}-0")
        commands.execute()


def test_what_lies_between_two_ids_is_counted_and_read(entries: Entries, redis: Redis) -> None:
    assert (entries.last(), entries.step(BEGINNING, "+", 10)) == (BEGINNING, (0, BEGINNING))
    rows = 2 * ENTRIES_PER_PAGE + 5
    add(redis, 1, rows + 1)
    assert entries.last() == f"{rows}-0"
    assert entries.step(BEGINNING, "+", 2 * rows) == (rows, f"{rows}-0")
    assert entries.step("3-0", "+", ENTRIES_PER_PAGE + 1) == (1_001, "1004-0")
    assert entries.step("3-0", "7-0", 100) == (4, "7-0")
    assert entries.step(f"{rows}-0", "+", 5) == (0, f"{rows}-0")
    read = [fields[b"n"] for page in entries.pages("3-0", "2000-0") for _, fields in page]
    assert read == [b"%d" % at for at in range(4, 2001)]


@rule("pipeline-6")
def test_an_entry_that_was_read_last_must_be_there_or_be_the_newest(
    entries: Entries, redis: Redis
) -> None:
    entries.require(BEGINNING)
    add(redis, 1, 10)
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
