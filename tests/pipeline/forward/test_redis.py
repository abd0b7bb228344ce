"""Rows of a topic become entries of a Redis stream, over restarts of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis

from tests.pipeline.forward.forwarding import brief, forwarding
from tests.pipeline.ingest.ingesting import eventually
from tests.support.commands import serving_here
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.forward.sinks.redis import entry_of
from tidegate.pipeline.forward.target import Row

pytestmark = pytest.mark.redis


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        client.flushall()
        yield client


def file(address: str, options: str = "conflation=50ms", more: str = "") -> str:
    return f"""
        [forward.prices]
        source = {{topic = "prices", options = "{options}"{more}}}
        sink = {{kind = "redis", address = "{address}", stream = "out"}}
    """


def entries(redis: Redis) -> list[dict[str, Any]]:
    """The entries, with JSON where they have it."""
    found: Any = redis.xrange("out")
    return [
        {
            name.decode(): msgspec.json.decode(text)
            if name in (b"key", b"value")
            else text.decode()
            for name, text in fields.items()
        }
        for _, fields in found
    ]


@rule("forward-1")
def test_rows_removals_and_a_resume_are_entries(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1, "n": 1}, {"k": 2, "n": 1}])
        with forwarding(tmp_path, file(redis_url), address) as lines:
            eventually(lambda: len(entries(redis)), 3)
            gateway.delete_records("prices", record_key=2)
            eventually(lambda: len(entries(redis)), 4)
        assert [brief(each) for each in entries(redis)] == [
            ("reset", None),
            ("snapshot", {"k": 1, "n": 1}),
            ("snapshot", {"k": 2, "n": 1}),
            ("delete", [2]),
        ]
        assert entries(redis)[3]["reason"] == "deleted"
        assert entries(redis)[1].keys() == {"topic", "op", "key", "bookmark", "value"}
        # Conflated while nobody was there: the newest of each key, and removals.
        gateway.publish("prices", [{"k": 1, "n": n} for n in range(2, 9)])
        with forwarding(tmp_path, file(redis_url), address):
            eventually(lambda: len(entries(redis)), 5)
            gateway.publish("prices", {"k": 3})
            eventually(lambda: len(entries(redis)), 6)
        assert [brief(each) for each in entries(redis)[4:]] == [
            ("publish", {"k": 1, "n": 8}),
            ("publish", {"k": 3}),
        ]
        assert lines[0].startswith("prices: topic prices to redis ")
        assert "secret" not in lines[0]


def test_every_message_of_a_topic_without_key_is_an_entry_over_restarts(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    definition = file(redis_url, "conflation=none,bookmark=epoch")
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {})
        for low in (0, 50, 100):
            gateway.publish("prices", [{"n": n} for n in range(low, low + 50)])
            with forwarding(tmp_path, definition, address):
                eventually(lambda: len(entries(redis)), low + 50)
        assert [each["value"]["n"] for each in entries(redis)] == list(range(150))


@rule("forward-2")
def test_what_another_filter_selects_begins_with_a_snapshot(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1}, {"k": 2}])
        with forwarding(tmp_path, file(redis_url, more=', filter = "/k > 1"'), address):
            eventually(lambda: [brief(each)[0] for each in entries(redis)], ["reset", "snapshot"])
        with forwarding(tmp_path, file(redis_url, more=', filter = "/k > 0"'), address):
            wanted = ["reset", "snapshot", "snapshot"]
            eventually(lambda: [brief(each)[0] for each in entries(redis)[2:]], wanted)


def test_texts_of_an_envelope_are_texts_and_one_that_is_null_is_left_out() -> None:
    """A row that was polled has no bookmark."""
    fields = {
        "topic": b'"t"',
        "op": b'"publish"',
        "key": b"null",
        "bookmark": b"null",
        "conflated": b"2",
        "first": b'"e-1"',
        "value": b'"x"',
    }
    entry = entry_of(Row("publish", {name: msgspec.Raw(text) for name, text in fields.items()}))
    assert dict(zip(entry[::2], entry[1::2], strict=True)) == {
        "topic": "t",
        "op": "publish",
        "key": b"null",
        "conflated": b"2",
        "first": "e-1",
        "value": b'"x"',
    }


def test_a_stream_may_have_a_bound(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    definition = file(redis_url).replace('"out"', '"out", entries_max = 100')
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": n} for n in range(1_000)])
        with forwarding(tmp_path, definition, address):
            eventually(
                lambda: [each["value"] for each in entries(redis)[-1:] if "value" in each],
                [{"k": 999}],
            )
        assert 100 <= len(entries(redis)) < 400
