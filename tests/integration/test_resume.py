"""Coming back with Last-Event-ID: by changes, by replay, by snapshot; nothing is lost silently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gateways import Running, Stream, running_gateway
from tests.support.rules import rule

KEYED = "conflation=50ms"
BY_EXCHANGE = "conflation=50ms,conflation_key=[/g]"


class Replica:
    """What a client shows: the newest row of each key, and where it stands."""

    def __init__(self, *key: str) -> None:
        self.key = key
        self.rows: dict[tuple[Any, ...], Any] = {}
        self.seen: list[Any] = []
        self.resumed: dict[str, Any] | None = None

    async def follow(self, stream: Stream, until: int) -> str:
        """Take what comes up to the message numbered `until`; returns the last id."""
        at = ""
        while not at.endswith(f"-{until}"):
            event = await stream.next()
            at = event.id
            if event.name == "resumed":
                self.resumed = json.loads(event.text)
            elif event.name == "group_begin":
                self.rows.clear()
            elif event.name == "message":
                row = json.loads(event.text)
                self.seen.append(row["v"])
                self.rows[tuple(row[name] for name in self.key)] = row
        return at

    def values(self) -> list[int]:
        return sorted(row["v"] for row in self.rows.values())


class Feed:
    """Publishes rows with rising `v`: row v has key v % 7 and group v % 3."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.count = 0

    async def rows(self, count: int) -> None:
        rows = [{"k": v % 7, "g": v % 3, "v": v} for v in self._next(count)]
        await self.running.publish(*rows)

    def _next(self, count: int) -> range:
        first = self.count + 1
        self.count += count
        return range(first, first + count)


async def come_back(
    running: Running, feed: Feed, replica: Replica, options: str, missed: int, **params: str
) -> None:
    """Follow, leave, miss some, come back, and follow on."""
    async with running.subscribe(options, **params) as stream:
        await feed.rows(10)
        left_at = await replica.follow(stream, 10)
    if missed:
        await feed.rows(missed)
    async with running.subscribe(options, last_id=left_at, **params) as stream:
        if missed:
            await replica.follow(stream, 10 + missed)
        await feed.rows(5)
        await replica.follow(stream, 15 + missed)


async def sow_values(running: Running) -> list[int]:
    return sorted(row["v"] for row in await running.sow())


@pytest.mark.parametrize("options", [KEYED, "conflation=50ms,pace=key"])
@pytest.mark.parametrize("missed", [0, 3, 500])
async def test_an_interval_on_a_keyed_topic_continues_by_what_changed(
    options: str, missed: int
) -> None:
    async with running_gateway() as running:
        await running.topic(key=["/k"], history={"messages": 5})
        replica = Replica("k")
        await come_back(running, Feed(running), replica, options, missed)
        assert replica.resumed is not None
        assert (replica.resumed["mode"], replica.resumed["gap_messages"]) == ("changes", missed)
        assert replica.values() == await sow_values(running)


async def test_every_message_continues_by_replay() -> None:
    async with running_gateway() as running:
        await running.topic(key=["/k"])
        replica = Replica("k")
        await come_back(running, Feed(running), replica, "", 500, command="subscribe")
        assert replica.resumed is not None
        assert (replica.resumed["mode"], replica.resumed["gap_messages"]) == ("replay", 500)
        assert replica.seen == list(range(1, 516))
        assert replica.values() == await sow_values(running)


async def test_a_replay_beyond_the_queue_is_what_changed_instead() -> None:
    async with running_gateway(queue_messages_max=100) as running:
        await running.topic(key=["/k"])
        replica = Replica("k")
        await come_back(running, Feed(running), replica, "", 500, command="subscribe")
        assert replica.resumed is not None
        assert replica.resumed["mode"] == "changes"
        assert replica.values() == await sow_values(running)


async def test_a_trimmed_journal_continues_by_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic(key=["/k"], history={"messages": 5})
        replica = Replica("k")
        await come_back(running, Feed(running), replica, "", 50, command="subscribe")
        assert replica.resumed is not None
        assert replica.resumed["mode"] == "snapshot"
        assert replica.values() == await sow_values(running)


@rule("resume-2", "resume-4")
@pytest.mark.parametrize("topic_key", [[], ["/k"]])
async def test_an_interval_on_another_key_continues_from_the_journal(topic_key: list[str]) -> None:
    """On a plain topic, or by fields that are not of the topic's key."""
    async with running_gateway() as running:
        await running.topic(key=topic_key)
        replica = Replica("g")
        await come_back(running, Feed(running), replica, BY_EXCHANGE, 20, command="subscribe")
        assert replica.resumed is not None
        assert (replica.resumed["mode"], replica.resumed["gap_messages"]) == ("replay", 20)
        assert replica.values() == [33, 34, 35]


@rule("resume-5")
async def test_an_interval_on_a_trimmed_plain_topic_says_that_it_starts_anew() -> None:
    """There are no records to show, so the client drops what it holds."""
    async with running_gateway() as running:
        await running.topic(key=[], history={"messages": 5})
        replica = Replica("g")
        await come_back(running, Feed(running), replica, BY_EXCHANGE, 20)
        assert replica.resumed is not None
        assert (replica.resumed["mode"], replica.resumed["gap_messages"]) == ("snapshot", 20)
        assert replica.values() == [33, 34, 35]


@pytest.mark.parametrize("options", ["", KEYED])
async def test_who_leaves_before_the_first_message_misses_none(options: str) -> None:
    """A stream without a snapshot says at once from where to come back."""
    async with running_gateway() as running:
        await running.topic(key=["/k"])
        feed, replica = Feed(running), Replica("k")
        await feed.rows(2)
        async with running.subscribe(options, command="subscribe") as stream:
            left_at = stream.last_id
        await feed.rows(3)
        async with running.subscribe(options, last_id=left_at, command="subscribe") as stream:
            await replica.follow(stream, 5)
        assert replica.values() == [3, 4, 5]


async def test_a_snapshot_that_breaks_off_is_begun_again() -> None:
    """There is no id before all of it is there."""
    async with running_gateway() as running:
        await running.topic(key=["/k"])
        await Feed(running).rows(7)
        async with running.subscribe(KEYED) as stream:
            assert (stream.hello_id, (await stream.next()).id) == ("", "")


@pytest.mark.parametrize("bookmark", ["elsewhere-3", "not.one~of_ours", "0"])
@pytest.mark.parametrize("options", ["", KEYED])
async def test_an_unknown_id_continues_by_snapshot(bookmark: str, options: str) -> None:
    async with running_gateway() as running:
        await running.topic(key=["/k"])
        feed, replica = Feed(running), Replica("k")
        await feed.rows(30)
        replica.rows[("stale",)] = {"v": -1}
        async with running.subscribe(options, last_id=bookmark) as stream:
            await replica.follow(stream, 30)
        assert replica.resumed is not None
        assert (replica.resumed["mode"], replica.resumed["gap_messages"]) == ("snapshot", None)
        assert replica.values() == await sow_values(running)


async def test_a_topic_made_again_continues_by_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic(key=["/k"])
        replica = Replica("k")
        async with running.subscribe(KEYED) as stream:
            await Feed(running).rows(10)
            left_at = await replica.follow(stream, 10)
        await running.http.delete("/v1/topics/px")
        await running.topic(key=["/k"])
        await Feed(running).rows(3)
        async with running.subscribe(KEYED, last_id=left_at) as stream:
            await replica.follow(stream, 3)
        assert replica.resumed is not None
        assert replica.resumed["mode"] == "snapshot"
        assert replica.values() == [1, 2, 3]


async def test_an_id_from_the_future_continues_by_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic(key=["/k"])
        await Feed(running).rows(3)
        epoch = running.gateway.catalog.get("px").record.epoch
        replica = Replica("k")
        async with running.subscribe(KEYED, last_id=f"{epoch}-99") as stream:
            await replica.follow(stream, 3)
        assert replica.resumed is not None
        assert replica.resumed["mode"] == "snapshot"
