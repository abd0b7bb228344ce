"""The bus goes away, comes back, or has lost something: every stream gets a status, none bad rows.

Rules cluster-2 to cluster-4 are tested here (I25 and I26).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.buses import BusServer, bus_server, define_elsewhere, has_topic
from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Running, Stream, eventually, names, running_gateway
from tests.support.rules import rule
from tidegate.app.cluster import log_reader, scripts
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.log_reader import Doubt, TopicLogReader
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.cluster.topic_log import TopicLog, topic_keys
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Message, pack
from tidegate.app.stores.store import DefinitionsMoved, Publication, TopicRecord
from tidegate.conflation.frame import RestoredTopic

pytestmark = [pytest.mark.redis, pytest.mark.system, rule("cluster-2", "cluster-3", "cluster-4")]

A1 = {"k": "a", "v": 1}
B2 = {"k": "b", "v": 2}


@pytest.fixture
def server() -> Iterator[BusServer]:
    with bus_server() as running:
        yield running


async def status_of(stream: Stream) -> object:
    """What the next `status` says."""
    events = await stream.until("status")
    reported = json.loads(events[-1].text)
    assert reported["source"] == "bus"
    return reported["stale_since"]


async def began_again(stream: Stream) -> list[object]:
    """The rows of the snapshot that the next `resumed` announces."""
    events = await stream.until("group_end")
    assert "resumed" in names(events), names(events)
    [resumed] = [json.loads(event.text) for event in events if event.name == "resumed"]
    assert resumed["mode"] == "snapshot"
    behind = events[names(events).index("resumed") :]
    return [json.loads(event.text) for event in behind if event.name == "message"]


async def next_value(stream: Stream) -> object:
    """Return the value of the next message.

    `status` says that the bus is back: before the snapshot, or behind it where a check is due.
    """
    *before, event = await stream.until("message")
    assert set(names(before)) <= {"status"}
    return json.loads(event.text)


async def published(gateway: Running, *messages: object) -> str:
    """Published as soon as the bus takes it; the epoch that it is in."""
    lines = b"\n".join(json.dumps(message).encode() for message in messages)
    async with asyncio.timeout(LOOPS_S):
        while True:
            answer = await gateway.http.post(
                "/v1/topics/px/messages",
                content=lines,
                headers={"Content-Type": "application/x-ndjson"},
            )
            if answer.status_code == 200:
                return str(answer.json()["last"]).split("-")[0]
            assert answer.json()["code"] == "bus-unavailable", answer.text
            await asyncio.sleep(0.02)


async def test_while_the_bus_is_out_streams_stay_open_and_get_a_status(server: BusServer) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await gateway.publish(A1)
        async with gateway.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            server.kill()
            since = await status_of(stream)
            assert isinstance(since, str)
            assert since.endswith("Z")
            answer = await gateway.http.post("/v1/topics/px/messages", json=A1)
            assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
            assert (await gateway.http.get("/readyz")).status_code == 503
            assert (await gateway.http.get("/healthz")).status_code == 200
            assert await gateway.sow() == [A1]
            async with gateway.subscribe("conflation=10ms") as late:
                assert await status_of(late) == since
            server.start()
            assert await status_of(stream) is None
            assert (await gateway.http.get("/readyz")).status_code == 200


@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_another_life_of_the_bus_that_lacks_nothing_is_another_epoch_that_continues(
    server: BusServer, fsync: str
) -> None:
    server.kill()
    server.start("--appendfsync", fsync)
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        before = await published(gateway, A1)
        async with gateway.subscribe("conflation=none") as stream:
            await stream.until("group_end")
            seen = stream.last_id
            server.kill()
            server.start("--appendfsync", fsync)
            after = await published(gateway, B2)
            assert after != before
            assert await next_value(stream) == B2
            assert (seen, stream.last_id) == (f"{before}-1", f"{after}-2")
            shown = (await gateway.http.get("/v1/topics/px")).json()
            assert (shown["epoch"], shown["continues"]) == (after, {before: 1})
        async with gateway.subscribe(command="subscribe", last_id=seen) as stream:
            [resumed, message] = await stream.until("message")
            assert json.loads(resumed.text)["mode"] == "replay"
            assert json.loads(message.text) == B2
        kept = await gateway.http.get(f"/v1/topics/px/messages?from={seen}")
        assert [json.loads(line)["value"] for line in kept.text.splitlines()] == [B2]


async def test_what_another_life_of_the_bus_lacks_nothing_of_is_not_loaded_again(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all topics are in their epochs nothing is published."""
    async with running_gateway(redis=server.url) as one, running_gateway(redis=server.url) as other:
        await one.topic()
        before = await published(one, A1)
        await has_topic(other)
        load, loaded = TopicLog.load, list[str]()

        async def load_noted(log: TopicLog) -> RestoredTopic | None:
            loaded.append(log.record.name)
            return await load(log)

        monkeypatch.setattr(TopicLog, "load", load_noted)
        server.kill()
        server.start()
        for gateway in (one, other):
            assert await published(gateway, B2) != before
            assert await gateway.sow() == [A1, B2]
        assert "px" not in loaded


async def test_a_bus_that_was_emptied_begins_again_with_the_definitions(
    server: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(redis=server.url) as one, running_gateway(redis=server.url) as other:
        await one.topic(description="prices")
        before = await published(one, A1)
        async with other.subscribe("conflation=10ms") as stream, one.subscribe() as second:
            await stream.until("group_end")
            await second.until("group_end")
            await flush(server)
            assert await began_again(stream) == []
            assert await began_again(second) == []
            assert await published(one, B2) != before
            assert await next_value(stream) == B2
            assert await next_value(second) == B2
        answer = await other.http.get("/v1/topics/px")
        assert answer.json()["description"] == "prices"
    assert "the bus has lost " in caplog.text
    assert "px restarts in epoch " in caplog.text


@rule("cluster-12")
async def test_what_is_served_first_is_of_the_life_that_the_server_has(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        before = await published(gateway, A1)
    server.kill()
    server.start()
    monkeypatch.setattr(TopicLogReader, "run", asyncio.Event().wait)  # nothing is mended afterwards
    async with running_gateway(redis=server.url) as gateway:
        shown = (await gateway.http.get("/v1/topics/px")).json()
        assert shown["epoch"] != before


async def test_a_bus_that_was_set_back_is_noticed(server: BusServer) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await published(gateway, A1)
        server.kill()
        backup = server.folder.with_name(server.folder.name + "-backup")
        shutil.copytree(server.folder, backup, ignore=shutil.ignore_patterns("*.sock"))
        server.start()
        await published(gateway, B2)
        async with gateway.subscribe("conflation=10ms") as stream:
            assert [event.text for event in await stream.until("group_end")][1:]
            server.kill()
            put_back(server, backup)
            server.start()
            assert await began_again(stream) == [A1]


@rule("cluster-5")
async def test_who_has_seen_more_than_a_bus_that_was_set_back_begins_again(
    server: BusServer,
) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await published(gateway, A1)
    server.kill()
    backup = server.folder.with_name(server.folder.name + "-backup")
    shutil.copytree(server.folder, backup, ignore=shutil.ignore_patterns("*.sock"))
    server.start()
    async with running_gateway(redis=server.url) as gateway:
        last = (await gateway.publish(B2))["last"]
    server.kill()
    put_back(server, backup)
    server.start()
    async with running_gateway(redis=server.url) as one, running_gateway(redis=server.url) as other:
        async with other.subscribe("conflation=10ms") as present:
            await present.until("group_end")
            async with one.subscribe("conflation=10ms", last_id=last) as stream:
                assert await began_again(stream) == [A1]
            after = await published(one, B2)
            assert not last.startswith(after)
            assert await next_value(present) == B2
        await other.http.get(f"/v1/topics/px/messages?from={after}-99")
        assert await published(other, B2) == after, "it was made since"


def put_back(server: BusServer, backup: Path) -> None:
    for folder in server.folder.iterdir():
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    shutil.copytree(backup, server.folder, dirs_exist_ok=True)
    shutil.rmtree(backup)


async def test_a_stream_that_was_lost_is_noticed(server: BusServer) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        before = await published(gateway, A1)
        async with gateway.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            connection = BusConnection(server.url)
            await connection.execute("DEL", connection.topic_key("px", "stream"))
            await connection.aclose()
            assert await published(gateway, B2) != before
            assert await began_again(stream) == [A1]
            assert await next_value(stream) == B2


@rule("cluster-12")
async def test_a_gateway_that_has_not_heard_of_its_topics_epochs_is_not_ready(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one begins them between its look at the definitions and that at its topics."""
    async with running_gateway(redis=server.url) as one, running_gateway(redis=server.url) as other:
        await one.topic()
        before = await published(one, A1)
        await has_topic(other)
        looks, has_begun, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        readers = [log_reader_of(gateway) for gateway in (one, other)]
        repairs = [reader._repair_suspects for reader in readers]

        async def repair_first() -> dict[str, Doubt]:
            if readers[0]._suspects:
                await looks.wait()
            return await repairs[0]()

        async def repair_late() -> dict[str, Doubt]:
            if readers[1]._suspects:
                looks.set()
                await has_begun.wait()
            return await repairs[1]()

        monkeypatch.setattr(readers[0], "_repair_suspects", repair_first)
        monkeypatch.setattr(readers[1], "_repair_suspects", repair_late)
        assert other.gateway.bus is not None
        definition_sync = other.gateway.bus._definition_sync
        assert definition_sync is not None
        sync = definition_sync.sync

        async def sync_late() -> None:
            await goes_on.wait()
            await sync()

        monkeypatch.setattr(definition_sync, "sync", sync_late)
        server.kill()
        await eventually(lambda: other.gateway.outage.is_on, "it has noticed")
        server.start()
        assert await published(one, B2) != before
        has_begun.set()
        for _ in range(20):
            assert (await other.http.get("/readyz")).status_code == 503
            await asyncio.sleep(0.1)
        goes_on.set()
        assert await published(other, B2) != before
        assert (await other.http.get("/readyz")).status_code == 200


@rule("cluster-12")
async def test_a_gateway_is_not_ready_from_the_moment_at_which_another_life_begins(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no connection is lost, as when the first replica comes; and until all is done."""
    monkeypatch.setattr("tidegate.app.cluster.log_reader.CHECKED_AT_ONCE", 1)
    async with running_gateway(redis=server.url) as gateway:
        for name in ("other", "px"):
            await gateway.topic(name)
        before = {entry.name: entry.record.epoch for entry in gateway.gateway.catalog.entries()}
        reader, goes_on = log_reader_of(gateway), asyncio.Event()
        check = reader._check

        async def check_late(names: Iterable[str]) -> None:
            await goes_on.wait()
            await check(names)

        monkeypatch.setattr(reader, "_check", check_late)
        assert gateway.gateway.bus is not None
        connection = gateway.gateway.bus.connection
        assert (await gateway.http.get("/readyz")).status_code == 200
        life = await connection.run_script(scripts.LIFE, [], [])
        _, replica = await asyncio.open_unix_connection(f"{server.folder}/bus.sock")
        replica.write(b"PSYNC ? -1\r\n")
        async with asyncio.timeout(LOOPS_S):
            while await connection.run_script(scripts.LIFE, [], []) == life:
                await asyncio.sleep(0.01)
        assert (await gateway.http.get("/readyz")).status_code == 503
        goes_on.set()
        async with asyncio.timeout(LOOPS_S):
            while (await gateway.http.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.01)
        for name in before:
            assert gateway.gateway.catalog.get(name).record.epoch != before[name]
        await published(gateway, A1)
        replica.close()


def log_reader_of(gateway: Running) -> TopicLogReader:
    """What reads its topics from the bus."""
    assert gateway.gateway.bus is not None
    assert gateway.gateway.bus._log_reader is not None
    return gateway.gateway.bus._log_reader


@rule("topic-15")
async def test_an_unusable_topic_is_taken_over_in_a_later_life_of_the_bus(
    server: BusServer,
) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        epoch = await published(gateway, A1)
        catalog, connection = gateway.gateway.catalog, BusConnection(server.url)
        text = b'{"key":["/k"],"merge":"no:such"}'
        await define_elsewhere(connection, "px", epoch, text)
        await eventually(lambda: catalog.unusable("px") is not None, "it cannot be used any more")
        server.kill()
        server.start()
        async with asyncio.timeout(LOOPS_S):
            while True:
                answer = await gateway.http.put("/v1/topics/px", json={"key": ["/k"]})
                if answer.status_code == 200:
                    break
                assert answer.json()["code"] == "bus-unavailable", answer.text
                await asyncio.sleep(0.02)
        await published(gateway, B2)
        assert await gateway.sow() == [A1, B2]
        await connection.aclose()


@rule("topic-9")
async def test_a_derived_topic_that_the_bus_has_lost_is_filled_again(server: BusServer) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await gateway.topic("slow", key=[], source={"topic": "px", "interval": "100ms"})
        await gateway.publish(A1)
        catalog, engine = gateway.gateway.catalog, gateway.gateway.driver.engine

        def is_filled() -> bool:
            sow = engine.topic("slow").sow
            return sow is not None and len(sow.board.live()) == 1

        await eventually(is_filled, "it is filled")
        epoch = catalog.get("slow").record.epoch
        connection = BusConnection(server.url)
        await connection.execute("DEL", *topic_keys(connection, "slow"))
        await connection.aclose()
        await eventually(lambda: catalog.get("slow").record.epoch != epoch, "it begins again")
        await eventually(is_filled, "it is filled again")


@rule("topic-9")
async def test_a_chain_of_derived_topics_begins_again_in_the_order_of_its_sources(
    server: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Else what the server has lost is written again, from a source that still has it."""
    chain = ["px", "medium", "late"]  # not in the order of the names
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        for source, name in itertools.pairwise(chain):
            await gateway.topic(name, key=[], source={"topic": source, "interval": "100ms"})
        server.kill()
        server.start()
        await published(gateway, A1)

        await eventually(lambda: set(restarted(caplog, chain)) == set(chain), "all begin again")
        assert restarted(caplog, chain) == chain


@rule("topic-9")
async def test_a_derived_topic_waits_for_a_source_that_cannot_begin_again_yet(
    server: BusServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does what is filled from that one in turn; a topic apart from them begins at once."""
    chain, put_off = ["px", "medium", "late"], list[str]()
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await gateway.topic("alone")
        for source, name in itertools.pairwise(chain):
            await gateway.topic(name, key=[], source={"topic": source, "interval": "100ms"})
        reader = log_reader_of(gateway)
        restart = reader._restart

        async def restart_later(name: str, doubt: Doubt) -> bool:
            if name == "px" and not put_off:
                put_off.append(name)
                return False
            return await restart(name, doubt)

        monkeypatch.setattr(reader, "_restart", restart_later)
        server.kill()
        server.start()
        await published(gateway, A1)
        every = ["alone", *chain]
        await eventually(lambda: set(restarted(caplog, every)) == set(every), "all begin again")
        assert restarted(caplog, every) == every


@rule("topic-9")
async def test_a_lost_chain_of_derived_topics_begins_again_in_the_order_of_its_sources(
    server: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the sources were made last, and the bus has lost the definitions."""
    chain = ["px", "medium", "late"]
    async with running_gateway(redis=server.url) as gateway:
        for name in reversed(chain):
            await gateway.topic(name)
        for source, name in itertools.pairwise(chain):
            await gateway.topic(name, source={"topic": source, "interval": "100ms"})
        await flush(server)
        await eventually(lambda: set(restarted(caplog, chain)) == set(chain), "all begin again")
        assert restarted(caplog, chain) == chain


def restarted(caplog: pytest.LogCaptureFixture, chain: Sequence[str]) -> list[str]:
    """The topics of a chain that have begun again, in that order."""
    records = [it for it in caplog.records if "restarts in epoch" in it.getMessage()]
    return [name for it in records if (name := it.getMessage().split()[0]) in chain]


@pytest.mark.parametrize("deleted", [b"2-0", b"1-0"])
async def test_a_gateway_starts_on_a_stream_whose_entries_were_deleted(
    server: BusServer, deleted: bytes
) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await gateway.publish(A1)
        before = await published(gateway, B2)
    connection = BusConnection(server.url)
    await connection.execute("XDEL", connection.topic_key("px", "stream"), deleted)
    await connection.aclose()
    async with running_gateway(redis=server.url) as gateway:
        is_continued = await published(gateway, {"k": "c", "v": 3}) == before
        assert is_continued == (deleted == b"1-0"), "an end that is missing is noticed"
        assert await gateway.sow() == [A1, B2, {"k": "c", "v": 3}]


async def write_entry(server: BusServer, epoch: str, offset: int, value: object) -> None:
    """Write an entry with one message into the log of px, as a gateway of this epoch would."""
    connection = BusConnection(server.url)
    await connection.execute(
        "EVAL",
        "redis.call('HSET', KEYS[1], 'head', ARGV[2]) "
        "redis.call('XADD', KEYS[2], ARGV[2] .. '-0', 'e', ARGV[1], 'f', ARGV[2], 't', 0, 'b', 0, "
        "'i', ARGV[3])",
        2,
        connection.topic_key("px", "state"),
        connection.topic_key("px", "stream"),
        epoch,
        offset,
        pack([Message(json.dumps(value).encode(), '["b"]')]),
    )
    await connection.aclose()


@rule("cluster-13")
async def test_an_entry_of_another_history_in_the_same_epoch_has_the_topic_begin_again(
    server: BusServer,
) -> None:
    """Else the gateway would read it for ever, and nothing behind it."""
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        epoch = await published(gateway, A1)
        async with gateway.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            await write_entry(server, "lost", 2, B2)
            assert await began_again(stream) == [A1, B2]
            await published(gateway, A1)
            assert stream.last_id.startswith(epoch)


@rule("cluster-16")
async def test_what_was_read_before_its_epoch_was_known_has_nothing_begin_again(
    server: BusServer,
) -> None:
    """The gateway has heard of the epoch when it looks again."""
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await gateway.publish(A1)
        reader = log_reader_of(gateway)
        async with gateway.subscribe("conflation=none") as stream:
            await stream.until("group_end")
            reader.suspect("px", Doubt.HISTORY)
            await eventually(lambda: not reader._suspects, "it is looked at")
            await gateway.publish(B2)
            assert [event.name for event in await stream.until("message")] == ["message"]


async def test_who_missed_what_was_trimmed_begins_again_in_the_same_epoch(
    server: BusServer,
) -> None:
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        epoch = await published(gateway, A1)
        async with gateway.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            await write_entry(server, epoch, 9, B2)
            connection = BusConnection(server.url)
            await connection.execute("XDEL", connection.topic_key("px", "stream"), "1-0")
            await connection.aclose()
            assert await began_again(stream) == [A1, B2]
            assert stream.last_id == f"{epoch}-9"
            assert await published(gateway, A1) == epoch


async def flush(server: BusServer) -> None:
    connection = BusConnection(server.url)
    await connection.execute("FLUSHALL")
    await connection.aclose()


@rule("cluster-16")
async def test_what_is_read_in_another_life_of_redis_is_no_history_of_the_epoch_before(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis dies between the start of an epoch and the reading of what it holds."""
    older = server.folder / "older"
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await gateway.publish(A1)
        shutil.copytree(server.folder / "appendonlydir", older)
        await gateway.publish(B2)
        bus = gateway.gateway.bus
        assert bus is not None
        load, renew = bus.store.load, gateway.gateway.catalog.renew
        loaded, renewed = list[str](), list[str]()

        async def load_late(name: str) -> RestoredTopic:
            loaded.append(name)
            if name == "px" and loaded.count(name) == 1:
                server.kill()
                shutil.rmtree(server.folder / "appendonlydir")
                older.rename(server.folder / "appendonlydir")
                server.start()
                await bus.connection.writer.connection_pool.disconnect()
            return await load(name)

        def renew_noted(record: TopicRecord, kept: RestoredTopic) -> None:
            if record.name == "px":
                renewed.append(record.epoch)
            renew(record, kept)

        monkeypatch.setattr(bus.store, "load", load_late)
        monkeypatch.setattr(gateway.gateway.catalog, "renew", renew_noted)
        server.kill()
        server.start()
        last = await published(gateway, B2)
        assert renewed == [last]


@rule("cluster-3")
async def test_a_bus_that_dies_while_an_epoch_begins_is_written_when_it_is_back(
    server: BusServer,
) -> None:
    """Another gateway began an epoch in a life of the server that ended before it was loaded."""
    link = server.folder / "link.sock"
    link.symlink_to("bus.sock")
    async with running_gateway(redis=f"unix://{link}") as gateway:
        await gateway.topic()
        before = await published(gateway, A1)
        link.unlink()
        server.kill()
        server.start()
        bus = BusConnection(server.url)
        await bus.run_script(scripts.CONFIRM_EPOCH, topic_keys(bus, "px"), [before, "begun", 1])
        await bus.aclose()
        server.kill()
        server.start()
        link.symlink_to("bus.sock")
        assert await published(gateway, B2) not in {before, "begun"}
        assert await gateway.sow() == [A1, B2]


@rule("cluster-16")
async def test_a_gateway_that_starts_in_a_failover_serves_no_epoch_of_another_server(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one begins an epoch while the topics are loaded, and takes messages in it."""
    load = RedisStore.load
    async with running_gateway(redis=server.url) as other:
        await other.topic()
        before = await published(other, A1)
        began = list[str]()

        async def load_late(store: RedisStore, name: str) -> RestoredTopic:
            if name == "px" and not began:
                bus = other.gateway.bus
                assert bus is not None
                connection = bus.connection
                await connection.execute("HSET", connection.topic_key("px", "state"), "life", "")
                began.append(await published(other, B2))
            return await load(store, name)

        monkeypatch.setattr(RedisStore, "load", load_late)
        async with running_gateway(redis=server.url) as gateway:
            topic = gateway.gateway.catalog.served("px")
            assert topic is None or topic.record.epoch in began, "not the epoch before"
            assert await gateway.sow() == [A1, B2]
            document = (await gateway.http.get("/v1/topics/px")).json()
            assert document["epoch"] == began[0] != before


def epoch_of(gateway: Running, name: str) -> str:
    topic = gateway.gateway.catalog.served(name)
    assert topic is not None
    return topic.record.epoch


@rule("cluster-4")
async def test_a_topic_whose_maker_died_together_with_the_bus_holds_up_nothing(
    server: BusServer,
) -> None:
    link = server.folder / "link.sock"
    link.symlink_to("bus.sock")
    async with running_gateway(redis=f"unix://{link}") as gateway:
        await gateway.topic()
        link.unlink()
        server.kill()
        server.start()
        connection = BusConnection(server.url)
        maker = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
        await maker.open()
        await maker.put_topic(TopicRecord("made", TopicDefinition.parse(b'{"key":["/k"]}'), "e1"))
        publication = Publication([Message(json.dumps(A1).encode(), '["a"]')], 0)
        await maker.append("made", publication)
        await maker.aclose()
        server.kill()
        server.start()
        link.symlink_to("bus.sock")
        await published(gateway, B2)
        await has_topic(gateway, "made")
        await eventually(
            lambda: gateway.gateway.driver.engine.topic("made").head == 1, "it is read"
        )
        await eventually(lambda: epoch_of(gateway, "made") != "e1", "it has begun anew")


async def test_a_topic_whose_epoch_cannot_be_written_yet_is_tried_again_soon(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other gateways write theirs at the same time, and the bus counts as out meanwhile."""
    monkeypatch.setattr(log_reader, "WAIT_S", 4 * LOOPS_S)
    put_epoch, tries = RedisStore.put_epoch, list[str]()

    async def put_late(store: RedisStore, record: TopicRecord) -> None:
        tries.append(record.name)
        if len(tries) <= 3:
            raise DefinitionsMoved
        await put_epoch(store, record)

    monkeypatch.setattr(RedisStore, "put_epoch", put_late)
    async with running_gateway(redis=server.url) as gateway:
        await gateway.topic()
        await published(gateway, A1)
        server.kill()
        server.start()
        await published(gateway, B2)
        assert len(tries) > 3
