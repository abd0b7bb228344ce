"""What is acknowledged has been written: the death of Redis takes nothing of it along.

Rule publish-2 is tested here.
"""

from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from tests.support.buses import BusServer, bus_server, on_a_slow_disk
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tidegate.app.cluster import persistence as module
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.persistence import LogState, wait_until_written
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.cluster.scripts import LIFE
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Message
from tidegate.app.stores.store import Publication, Retry, Stored, TopicRecord

pytestmark = rule("publish-2")


SYNC_S = 1.5
LIVES = "a life of Redis"[:16]


def store_on(connection: BusConnection) -> RedisStore:
    return RedisStore(connection, Settings(), Definitions(connection, Mergers()))


async def is_syncing(connection: BusConnection) -> bool:
    return bool((await connection.execute("INFO", "persistence"))["aof_pending_bio_fsync"])


@pytest.mark.redis
@pytest.mark.parametrize("kind", ["redis", pytest.param("valkey", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("is_again", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.nightly
async def test_what_was_acknowledged_on_a_slow_disk_survives_the_death_of_redis(
    kind: str, *, is_again: bool
) -> None:
    asked = Publication([Message(b"2")], 0, retry=Retry("r", b"digest"))
    with bus_server(kind) as server:
        server.kill()
        server.start("--appendfsync", "everysec", before=on_a_slow_disk(SYNC_S))
        connection = BusConnection(server.url)
        store = store_on(connection)
        await store.open()
        await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
        while not await is_syncing(connection):
            await store.append("t", Publication([Message(b"1")], 0))
        last = (await store.append("t", asked)).last if not is_again else 0
        if is_again:
            first = asyncio.create_task(store.append("t", asked))  # whose answer is not waited for
            while not await connection.execute("EXISTS", connection.topic_key("t", "retry:r")):
                await asyncio.sleep(0)
            again = await store.append("t", asked)
            assert again.duplicate
            last = again.last
            first.cancel()
        server.kill()
        await connection.aclose()
        server.start()
        connection = BusConnection(server.url)
        store = store_on(connection)
        await store.open()
        await store.settle_epochs()
        await store.records()
        assert (await store.load("t")).head == last
        await connection.aclose()


@pytest.mark.redis
async def test_nobody_waits_where_nothing_waits(redis_bus: BusServer) -> None:
    connection = BusConnection(redis_bus.url, "written-test")
    await connection.execute("SET", connection.shared_key("x"), "1")
    life = await connection.run_script(LIFE, [], [])
    await wait_until_written(connection, life.decode(), is_whole=True)
    await connection.aclose()


@pytest.mark.parametrize(
    ("now", "is_written"),
    [
        (LogState(LIVES, 100, 50), False),
        (LogState(LIVES, 149, 60), False),
        (LogState(LIVES, 150, 60), True),
        (LogState(LIVES, 40, 60), False),
        (LogState(LIVES, 40, 0), True),
    ],
)
def test_what_waited_is_written_once_the_file_has_grown_by_it(
    now: LogState, *, is_written: bool
) -> None:
    assert now.has_written(LogState(LIVES, 100, 50)) is is_written


class ReportingBus(BusConnection):
    """A bus that reports given states of its file, the last of them for ever."""

    def __init__(self, *states: tuple[int, ...], run_id: str = LIVES) -> None:
        super().__init__("unix:///nowhere/bus.sock")
        self.states = list(states)
        self.run_id = run_id

    async def execute(self, *arguments: object) -> dict[str, object]:
        assert arguments == ("INFO",)
        shown = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        names = ("aof_current_size", "aof_buffer_length", "aof_rewrite_in_progress")
        return {"run_id": self.run_id, **dict(zip(names, shown, strict=False))}


async def test_a_file_that_is_rewritten_counts_anew() -> None:
    shown = ReportingBus((1_000, 50), (200, 70), (260, 30), (270, 20))
    await wait_until_written(shown, LIVES, is_whole=True)
    assert shown.states == [(270, 20)]


async def test_a_bus_that_does_not_write_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_S_MAX", 0.05)
    with pytest.raises(Refused, match="bus-unavailable"):
        await wait_until_written(ReportingBus((100, 50)), LIVES, is_whole=True)
    assert LogState.parse({}) == LogState("", 0, 0)


@rule("cluster-4")
async def test_a_file_of_another_life_says_nothing_of_what_was_to_be_written() -> None:
    with pytest.raises(Refused, match="died before it had written"):
        await wait_until_written(ReportingBus((100, 0), run_id="another"), LIVES, is_whole=True)


@pytest.mark.redis
@pytest.mark.parametrize(
    ("kind", "is_promoted"),
    [
        ("redis", True),
        pytest.param("redis", False, marks=pytest.mark.nightly),
        pytest.param("valkey", False, marks=pytest.mark.nightly),
    ],
)
async def test_what_was_acknowledged_while_redis_begins_its_file_survives_its_death(
    kind: str, *, is_promoted: bool
) -> None:
    """After `appendonly yes` at run time, and at a replica that has just got everything."""
    port, slow = lasting_port(), ("--rdb-key-save-delay", str(300_000))
    with bus_server(kind, "--port", str(port)) as primary, bus_server(kind, *slow) as server:
        full, admin = BusConnection(primary.url), BusConnection(server.url)
        for client in (full, admin):
            for number in range(5):
                await client.execute("SET", f"key {number}", "")
        await full.aclose()
        if is_promoted:
            await admin.execute("REPLICAOF", "127.0.0.1", port)
            while (await admin.execute("INFO"))["master_link_status"] != "up":
                await asyncio.sleep(0.01)
            await admin.execute("REPLICAOF", "NO", "ONE")
        else:
            await admin.execute("CONFIG SET", "appendonly", "no")
            await admin.execute("CONFIG SET", "appendonly", "yes")
        assert (await admin.execute("INFO"))["aof_rewrite_in_progress"]
        store = store_on(connection := BusConnection(server.url))
        await store.open()
        await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
        if not is_promoted:  # what makes the topic waits for the file, too
            await admin.execute("CONFIG SET", "appendonly", "no")
            await store.check_settings()
            await admin.execute("CONFIG SET", "appendonly", "yes")
            await store.check_settings()
        last = (await store.append("t", Publication([Message(b"1")], 0))).last
        server.kill()
        for client in (admin, connection):
            await client.aclose()
        server.start()
        store = store_on(connection := BusConnection(server.url))
        await store.open()
        await store.settle_epochs()
        await store.records()
        assert (await store.load("t")).head == last
        await connection.aclose()


@pytest.mark.parametrize(
    ("is_whole", "read"),
    [(True, 1), (False, 3)],
)
async def test_a_rewrite_is_waited_for_where_no_file_was_whole_before(
    *, is_whole: bool, read: int
) -> None:
    shown = ReportingBus((10, 0, 1), (20, 0, 1), (15, 0, 0), (16, 0, 0))
    await wait_until_written(shown, LIVES, is_whole=is_whole)
    assert len(shown.states) == 4 - read


async def test_the_size_of_another_file_says_nothing_of_what_was_to_be_written() -> None:
    shown = ReportingBus((100, 50, 1), (900, 50, 0), (920, 30, 0), (950, 10, 0))
    await wait_until_written(shown, LIVES, is_whole=True)
    assert shown.states == [(950, 10, 0)]


@pytest.mark.redis
async def test_a_definition_whose_answer_was_lost_keeps_its_messages(redis_bus: BusServer) -> None:
    """Another gateway may use the topic by then."""
    connection = BusConnection(redis_bus.url, "answer-lost")
    store, other = store_on(connection), store_on(connection)
    for each in (store, other):
        await each.open()
    create = store.definitions.create

    async def lost(stored: Stored, *, replaced: str = "", mark: str = "") -> None:
        await create(stored, replaced=replaced, mark=mark)
        for change in await other.changes():
            other.set_record(change.name, change.record)
        await other.append("t", Publication([Message(b"1")], 0))
        raise ConnectionLost("the answer was lost")

    store.definitions.create = lost  # type: ignore[method-assign]  # loses the reply
    with pytest.raises(Refused, match="bus-unavailable"):
        await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    assert (await other.load("t")).head == 1
    await connection.aclose()


@pytest.mark.redis
@pytest.mark.parametrize("is_deleted", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.nightly
async def test_a_definition_that_was_acknowledged_on_a_slow_disk_survives_the_death_of_redis(
    *, is_deleted: bool
) -> None:
    with bus_server() as server:
        server.kill()
        server.start("--appendfsync", "everysec", before=on_a_slow_disk(SYNC_S))
        connection = BusConnection(server.url)
        store = store_on(connection)
        await store.open()
        before = TopicRecord("t", TopicDefinition(description="before"), "e1")
        after = TopicRecord("t", TopicDefinition(description="after"), "e1")
        await store.put_topic(before)
        while not await is_syncing(connection):
            await store.append("t", Publication([Message(b"1")], 0))
        if is_deleted:
            await store.delete_topic("t")
        else:
            await store.put_topic(after)
        await store.settle()
        server.kill()
        await connection.aclose()
        server.start()
        connection = BusConnection(server.url)
        store = store_on(connection)
        await store.open()
        assert await store.records() == ([] if is_deleted else [after])
        await connection.aclose()
