"""A journal at a gateway, page by page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dev import ROOT
from tests.pipeline.journals import Journals, Removed
from tests.support.buses import BusServer, bus_server, gateways
from tests.support.gateways import NDJSON, Running
from tests.support.rules import rule
from tidegate.app.cluster.scripts import READ_MS
from tidegate.clients.answers import Journal
from tidegate.keys.text.bookmark import split_bookmark
from tidegate.pipeline.errors import GatewayRefused, SourceLost
from tidegate.pipeline.format import journal
from tidegate.pipeline.format import journal as busjournal
from tidegate.pipeline.format.journal import BusJournal, GatewayJournal, open_journal
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.format.reader import JournalEdge, JournalSlice, read_slice
from tidegate.pipeline.redis_server import RedisServer


def test_a_page_ends_where_the_slice_does(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MESSAGES_PER_REQUEST_MAX", 3)
    journals.topic("t", [b"1", Removed(b'["a"]'), b"3", b"4"])
    with open_journal(ReadOptions(journals.address, "t")) as opened:
        assert opened.ends() == Journal("e1", "e1-1", "e1-4")
        rows = opened.page("e1", 0, 4).to_pylist()
        assert [(row["key"], row["value"], row["removed"]) for row in rows] == [
            ('["k"]', "1", None), ('["a"]', None, "deleted"), ('["k"]', "3", None),
        ]  # fmt: skip
        assert opened.page("e1", 2, 3)["offset"].to_pylist() == [3]
        assert opened.page("e1", 4, 9).num_rows == 0


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("http://h:8080", GatewayJournal),
        ("redis://h/0", BusJournal),
        ("rediss://h/0", BusJournal),
        ("unix:///tmp/s", BusJournal),
    ],
)
def test_the_address_says_where_it_is_read(address: str, kind: type) -> None:
    with open_journal(ReadOptions(address, "t")) as opened:
        assert type(opened) is kind


Rows = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["redis", pytest.param("valkey", marks=pytest.mark.nightly)])
def bus(request: pytest.FixtureRequest) -> Iterator[BusServer]:
    with bus_server(request.param) as running:
        yield running


def ways(running: Running, bus: BusServer, topic: str, **more: Any) -> list[ReadOptions]:
    """The two ways to a topic: over its gateway, and past it."""
    prefix = running.gateway.settings.redis_prefix
    return [
        ReadOptions(running.address, topic, **more),
        ReadOptions(bus.url, topic, prefix, **more),
    ]


def all_rows(options: ReadOptions) -> Rows:
    edge = JournalEdge(options)
    start, end = edge.initial(), edge.end()
    return [row for part in edge.slices(start, end or start) for row in rows_of(options, part)]


def rows_of(options: ReadOptions, part: JournalSlice) -> Rows:
    return [row for batch in read_slice(options, part) for row in batch.to_pylist()]


async def fill(running: Running) -> None:
    """Small and large requests, a removal among messages, one of what was never there."""
    await running.topic()
    for number in range(7):
        await running.publish({"k": number % 3, "n": number})
    await running.publish(*({"k": number, "text": "é"} for number in range(60)))
    answer = await running.http.post(
        "/v1/topics/px/messages?format=envelope", headers=NDJSON,
        content=b'{"key":[1],"reason":"deleted"}\n{"value":{"k": 1.0, "n":[]}}\n'
        b'{"key":["none"],"reason":"match"}\n',
    )  # fmt: skip
    assert answer.status_code == 200
    await running.http.delete("/v1/topics/px/sow", params={"key": "[2]"})


@pytest.mark.redis
@rule("publish-11")
@pytest.mark.parametrize("shards", [None, 3])
async def test_both_ways_give_the_same_rows(bus: BusServer, shards: int | None) -> None:
    async with gateways(bus, 1) as [running]:
        await fill(running)
        expected, read = [
            await asyncio.to_thread(all_rows, way)
            for way in ways(running, bus, "px", shards=shards)
        ]
        assert read == expected
        assert sorted(row["offset"] for row in read) == list(range(1, 72))
        assert {row["removed"] for row in read} == {None, "deleted", "match"}


@pytest.mark.redis
async def test_a_slice_may_begin_and_end_within_a_request(
    bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busjournal, "MESSAGES_PER_REQUEST_MAX", 5)
    async with gateways(bus, 1) as [running]:
        await fill(running)
        expected, read = ways(running, bus, "px")
        epoch = running.gateway.catalog.get("px").record.epoch
        for after, last in ((0, 3), (2, 9), (20, 30), (66, 68), (67, 71), (70, 71)):
            part = JournalSlice(epoch, after, last)
            found = await asyncio.to_thread(rows_of, read, part)
            assert [row["offset"] for row in found] == list(range(after + 1, last + 1))
            assert found == await asyncio.to_thread(rows_of, expected, part)


@pytest.mark.redis
@pytest.mark.parametrize(
    ("kind", "content"), [("text", "text/plain"), ("binary", "application/octet-stream")]
)
async def test_texts_and_bytes_are_spelled_as_the_gateway_does(
    bus: BusServer, kind: str, content: str
) -> None:
    async with gateways(bus, 1) as [running]:
        await running.topic("raw", key=(), type=kind)
        for body in (b'"a"\nb', "é".encode()):
            await running.http.post(
                "/v1/topics/raw/messages", content=body, headers={"Content-Type": content}
            )
        expected, read = [
            await asyncio.to_thread(all_rows, way) for way in ways(running, bus, "raw")
        ]
        assert read == expected
        assert [row["key"] for row in read] == [None, None]


@pytest.mark.redis
async def test_an_empty_topic_has_a_place_to_begin_and_none_has_not(bus: BusServer) -> None:
    async with gateways(bus, 1) as [running]:
        await running.topic()
        expected, read = [
            await asyncio.to_thread(JournalEdge(way).initial) for way in ways(running, bus, "px")
        ]
        assert read == expected
        assert split_bookmark(read)[1] == 0
        for way in ways(running, bus, "none"):
            with pytest.raises(GatewayRefused, match="has no topic none"):
                await asyncio.to_thread(JournalEdge(way).end)


@pytest.mark.redis
async def test_trimmed_messages_are_an_error(bus: BusServer) -> None:
    async with gateways(bus, 1) as [running]:
        await running.topic("log", key=(), history={"messages": 1, "age": "1d"})
        await running.publish(1, 2, 3, topic="log")
        await asyncio.sleep(READ_MS / 1_000)  # so long the stream keeps what the history does not
        await running.publish(4, topic="log")
        epoch = running.gateway.catalog.get("log").record.epoch
        _, read = ways(running, bus, "log")
        assert [row["offset"] for row in await asyncio.to_thread(all_rows, read)] == [4]
        with pytest.raises(SourceLost, match=r"no longer holds 2 messages .* positions 2 to 3"):
            await asyncio.to_thread(rows_of, read, JournalSlice(epoch, 1, 4))
        with pytest.raises(SourceLost, match="no longer holds the messages after position 4"):
            await asyncio.to_thread(rows_of, read, JournalSlice(epoch, 4, 5))


@pytest.mark.redis
async def test_another_epoch_is_an_error_when_planned_and_when_read(
    bus: BusServer,
) -> None:
    async with gateways(bus, 1) as [running]:
        await fill(running)
        _, read = ways(running, bus, "px")
        edge = JournalEdge(read)
        start, end = edge.initial(), edge.end()
        assert end is not None
        [part] = edge.slices(start, end)
        await running.http.delete("/v1/topics/px")
        with pytest.raises(SourceLost, match="in another epoch"):
            await asyncio.to_thread(rows_of, read, part)
        await fill(running)
        with pytest.raises(SourceLost, match="another epoch of topic px"):
            await asyncio.to_thread(edge.resolve, start, await asyncio.to_thread(edge.end))
        with pytest.raises(SourceLost, match="in another epoch"):
            await asyncio.to_thread(rows_of, read, part)


@pytest.mark.redis
async def test_no_value_crosses_the_wire_for_the_ends(bus: BusServer) -> None:
    async with gateways(bus, 1) as [running]:
        await running.topic()
        await running.publish({"k": 1, "text": "x" * 500_000})
        prefix = running.gateway.settings.redis_prefix
        read = ReadOptions(bus.url, "px", prefix)
        with open_journal(read) as journal, RedisServer(bus.url) as admin:
            before = sent_bytes(admin)
            ends = await asyncio.to_thread(journal.ends)
            assert ends.first == ends.last
            assert sent_bytes(admin) - before < 10_000


@pytest.mark.redis
async def test_the_user_of_the_page_may_read_and_no_more(bus: BusServer) -> None:
    page = (ROOT / "docs" / "pipeline-spark.md").read_text("utf-8")
    [line] = re.findall(r"^ACL SETUSER spark on .*$", page, re.MULTILINE)
    async with gateways(bus, 1) as [running]:
        await fill(running)
        prefix = running.gateway.settings.redis_prefix
        with RedisServer(bus.url) as admin:
            admin.ask(*line.replace("{tidegate", "{" + prefix).split())
        address = f"{bus.url.replace('unix://', 'unix://spark@')}?password=PASSWORD"
        read = ReadOptions(address, "px", prefix)
        assert len(await asyncio.to_thread(all_rows, read)) == 71
        with RedisServer(address) as redis, pytest.raises(GatewayRefused, match="no permissions"):
            redis.ask("DEL", f"{{{prefix}:px}}:stream")


def sent_bytes(admin: RedisServer) -> int:
    """What the server has sent to anybody so far."""
    return int(admin.ask("INFO", "stats")["total_net_output_bytes"])
