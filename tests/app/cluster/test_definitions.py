"""Definitions on the bus, in the order in which they were written."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from tests.support.buses import BusServer
from tests.support.place import parsed
from tests.support.rules import rule
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.stores.store import TopicRecord

pytestmark = pytest.mark.redis
NUMBERS = itertools.count()


@pytest.fixture
async def connection(redis_bus: BusServer) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_bus.url, f"definitions-{next(NUMBERS)}")
    yield made
    await made.aclose()


async def seen(connection: BusConnection) -> Definitions:
    definitions = Definitions(connection, Mergers())
    await definitions.open()
    return definitions


def record(name: str, epoch: str = "e") -> TopicRecord:
    return TopicRecord(name, TopicDefinition(description=name), epoch)


async def test_they_come_in_the_order_in_which_they_were_written(connection: BusConnection) -> None:
    one, other = await seen(connection), await seen(connection)
    for name in ("b", "a"):
        await one.put(record(name))
    await one.delete("b")
    assert await other.is_behind()
    shown = [(change.name, change.record) for change in await other.changes()]
    assert shown == [("b", record("b")), ("a", record("a")), ("b", None)]
    assert await other.is_behind()
    for change in await other.changes():
        other.mark_seen(change.version)
    assert not await other.is_behind()
    assert await other.read() == [record("a")]


@rule("topic-9")
async def test_all_of_them_are_read_with_the_sources_first(connection: BusConnection) -> None:
    """What is filled from a topic is to begin again behind it."""
    one, other = await seen(connection), await seen(connection)
    for name, source in (("late", "medium"), ("medium", "px"), ("px", None)):
        filled = {} if source is None else {"source": {"topic": source, "interval": "1s"}}
        await one.put(TopicRecord(name, parsed(key=["/k"], **filled), "e"))
    chain = ["px", "medium", "late"]
    await connection.execute("XDEL", one.stream, "1-0")
    known = ["late", "gone", "px", "medium"]
    assert [change.name for change in await other.changes(known)] == ["gone", *chain]
    assert [each.name for each in await other.read()] == chain


async def test_a_change_that_is_read_while_redis_answers_is_no_loss(
    connection: BusConnection,
) -> None:
    one, other = await seen(connection), await seen(connection)
    ask = one._open

    async def ask_and_read_on() -> tuple[str, int]:
        answer = await ask()
        await other.put(record("b"))
        for change in await one.changes():
            one.mark_seen(change.version)
        return answer

    await one.put(record("a"))
    for change in await other.changes():
        other.mark_seen(change.version)
    with mock.patch.object(one, "_open", ask_and_read_on):
        assert await one.is_intact()


async def test_who_was_away_for_too_long_reads_all_of_them(connection: BusConnection) -> None:
    one, other = await seen(connection), await seen(connection)
    for name in ("a", "b", "c"):
        await one.put(record(name))
    await connection.execute("XDEL", one.stream, "1-0")
    for _ in range(2):
        shown = {change.name: change.record for change in await other.changes(["gone"])}
        assert shown == {"a": record("a"), "b": record("b"), "c": record("c"), "gone": None}
    for change in await other.changes():
        assert other.version == 0, "until the last one holds"
        other.mark_seen(change.version)
    assert other.version == 3
    for name in ("a", "b", "c"):
        await one.delete(name)
    await connection.execute("XDEL", one.stream, "4-0")
    assert list(await other.changes()) == []
    assert other.version == 6


@rule("cluster-13")
async def test_who_has_not_read_a_log_that_was_deleted_reads_all_of_them(
    connection: BusConnection,
) -> None:
    one, other = await seen(connection), await seen(connection)
    await one.put(record("a"))
    await connection.execute("DEL", one.stream)
    shown = {change.name: change.record for change in await other.changes(["gone"])}
    assert shown == {"a": record("a"), "gone": None}
    assert list(await one.changes()) == []


async def test_a_bus_that_was_emptied_or_set_back_is_another(connection: BusConnection) -> None:
    definitions = await seen(connection)
    await definitions.put(record("a"))
    assert await definitions.is_intact()
    await connection.execute("HSET", connection.shared_key("life"), "version", 0)
    assert not await definitions.is_intact()
    await connection.execute("DEL", connection.shared_key("life"))
    assert not await definitions.is_intact()
    await definitions.open()
    assert await definitions.is_intact()


async def test_what_asks_for_a_merger_that_is_not_here_is_there_and_unusable(
    connection: BusConnection,
) -> None:
    definitions = await seen(connection)
    await definitions.put(record("a"))
    document = b'{"merge":"nowhere:merge"}'
    await connection.execute("HSET", connection.shared_key("documents"), "a", document)
    [stored] = await definitions.read()
    assert isinstance(stored, Unusable)
    assert (stored.name, stored.text, stored.epoch) == ("a", document, record("a").epoch)
