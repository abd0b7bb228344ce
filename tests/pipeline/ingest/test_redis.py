"""Entries of a Redis stream become messages, each once, whichever processes restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.pipeline.ingest.ingesting import (
    begins,
    connector_of,
    eventually,
    ingesting,
    journal,
    read_until,
)
from tests.support.commands import serving_here
from tests.support.rules import rule
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.ingest.sources.redis import SEQUENCE_MAX, TIME_MAX, id_of, number_of

pytestmark = pytest.mark.redis


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        client.flushall()
        yield client


def add(redis: Redis, low: int, high: int, field: str = "json") -> None:
    for at in range(low, high):
        redis.xadd(
            "orders", {field: f'{{"k":{at % 3},"n":{at}}}'}, id=f"{1_700_000_000_000 + at}-0"
        )


def table(address: str, **more: object) -> dict[str, object]:
    return {"kind": "redis", "address": address, "stream": "orders", **more}


def test_ids_are_numbers_and_back() -> None:
    ids = ["0-1", "1-0", "1700000000000-7", f"{TIME_MAX}-{SEQUENCE_MAX}"]
    numbers = [number_of(each) for each in ids]
    assert [id_of(each) for each in numbers] == ids
    assert numbers == sorted(numbers)
    assert numbers[-1] == 2**63 - 1
    for beyond in (f"{TIME_MAX + 1}-0", f"1-{SEQUENCE_MAX + 1}"):
        with pytest.raises(SourceLost, match="has no number"):
            number_of(beyond)


def test_a_stream_is_read_after_the_number_that_the_gateway_has(
    redis: Redis, redis_url: str
) -> None:
    add(redis, 0, 3)
    connector = connector_of(table(redis_url, field="json"))
    connector.open({"": number_of("1700000000000-0")}.get)
    [batch] = read_until(connector, 2)
    assert [each.payload for each in batch.records] == [b'{"k":1,"n":1}', b'{"k":2,"n":2}']
    first = batch.records[0]
    assert (first.position, first.channel) == ("1700000000001-0", "orders")
    assert first.timestamp_ms == 1_700_000_000_001
    assert batch.lag == 0
    assert connector.read(0.01) is None
    connector.close()


def test_fields_of_an_entry_are_an_object_of_texts(redis: Redis, redis_url: str) -> None:
    redis.xadd("orders", {"k": 1, "n": "a"})
    connector = connector_of(table(redis_url))
    connector.open(lambda partition: None)
    [batch] = read_until(connector, 1)
    assert batch.records[0].payload == b'{"k":"1","n":"a"}'
    connector.close()


@pytest.mark.parametrize(("start", "found"), [("epoch", 2), ("1700000000000-0", 1), ("now", 0)])
def test_a_first_start_begins_where_the_definition_says(
    redis: Redis, redis_url: str, start: str, found: int
) -> None:
    add(redis, 0, 2)
    connector = connector_of(table(redis_url, **{"from": start}))
    connector.open(lambda partition: None)
    add(redis, 2, 3)
    batches = read_until(connector, found + 1)
    assert sum(len(each.records) for each in batches) == found + 1
    connector.close()


def test_entries_that_were_trimmed_before_they_were_read_end_the_source(
    redis: Redis, redis_url: str
) -> None:
    add(redis, 0, 3)
    connector = connector_of(table(redis_url))
    connector.open(lambda partition: None)
    read_until(connector, 3)
    add(redis, 3, 6)
    redis.xtrim("orders", maxlen=2, approximate=False)
    with pytest.raises(SourceLost, match="no longer holds entry 1700000000002-0"):
        connector.read(0.1)
    connector.close()


@pytest.mark.parametrize("start", ["now", "1700000000001-0"])
def test_a_start_after_the_newest_entry_loses_nothing_though_that_was_deleted(
    redis: Redis, redis_url: str, start: str
) -> None:
    add(redis, 0, 2)
    redis.xdel("orders", "1700000000001-0")
    connector = connector_of(table(redis_url, **begins(start)))
    connector.open(lambda partition: None)
    add(redis, 2, 3)
    [batch] = read_until(connector, 1)
    assert [(each.position, each.fault) for each in batch.records] == [("1700000000002-0", "")]
    redis.xdel("orders", "1700000000002-0")
    add(redis, 3, 4)
    with pytest.raises(SourceLost, match="no longer holds entry 1700000000002-0"):
        connector.read(1.0)
    connector.close()


def test_a_start_after_an_entry_that_is_gone_is_refused(redis: Redis, redis_url: str) -> None:
    add(redis, 0, 3)
    redis.xdel("orders", "1700000000001-0")
    connector = connector_of(table(redis_url, **begins("1700000000001-0")))
    with pytest.raises(SourceLost, match=r'does not hold entry .*; from = "epoch" reads'):
        connector.open(lambda partition: None)
    connector.close()


def test_a_gap_may_be_a_dead_letter(redis: Redis, redis_url: str) -> None:
    add(redis, 3, 6)
    connector = connector_of(table(redis_url, gaps="skip"))
    connector.open({"": number_of("1700000000002-0")}.get)
    [batch] = read_until(connector, 4)
    gap, first = batch.records[:2]
    assert (gap.payload, gap.position, gap.number) == (None, "1700000000002-0", first.number)
    assert gap.fault.startswith("Redis stream orders no longer holds entry 1700000000002-0")
    assert [each.fault for each in batch.records[1:]] == [""] * 3
    connector.close()


def test_what_is_there_is_counted_as_lag(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.redis.RECORDS_FIRST", 4)
    add(redis, 0, 10)
    connector = connector_of(table(redis_url))
    connector.open(lambda partition: None)
    batches = read_until(connector, 10)
    assert [(len(each.records), each.lag) for each in batches] == [(4, 6), (6, 0)]
    connector.close()


@rule("ingest-1")
def test_each_entry_is_published_once_over_restarts(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    definition = f"""
        [ingest.orders]
        key = ["/k"]
        source = {{kind = "redis", address = "{redis_url}", stream = "orders", field = "json"}}
        sink = {{topic = "orders"}}
    """
    add(redis, 0, 5)
    redis.xadd("orders", {"json": "{"}, id="1700000000005-0")
    redis.xadd("orders", {"other": "1"}, id="1700000000006-0")
    with serving_here() as address:
        for until in (10, 20, 30):
            add(redis, until - 3, until)
            wanted = [*range(5), *(at for low in range(7, until, 10) for at in range(low, low + 3))]
            with ingesting(tmp_path, definition, address) as lines:
                eventually(lambda: [each["n"] for each in journal(address, "orders")], wanted)
        dead = journal(address, "orders.dead")
        assert [each["position"] for each in dead] == ["1700000000005-0", "1700000000006-0"]
        assert dead[0] == {
            "ingest": "orders",
            "source": dead[0]["source"],
            "position": "1700000000005-0",
            "channel": "orders",
            "key": None,
            "timestamp_ms": 1_700_000_000_005,
            "reason": dead[0]["reason"],
            "payload": "{",
            "base64": False,
            "bytes": 1,
        }
        assert dead[0]["reason"].startswith("not JSON")
        [row] = journal(address, "tidegate.pipelines")[-1:]
        assert (row["pipeline"], row["state"], row["lag"]) == ("orders", "ended", 0)
        assert lines[0].startswith("orders: redis ")
