"""What the store on a bus does beyond what every store does (`tests/app/stores/test_store.py`).

Rules cluster-4 and publish-11 are tested here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.buses import BusServer, bus_server
from tests.support.manual_driver import make_frames, tokens
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.cluster import redis_store as module
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.membership import fence_key
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.cluster.scripts import READ_BYTES, READ_MESSAGES, READ_MS
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.http.application import create_app
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Item, Message, Removal, pack
from tidegate.app.stores.store import (
    Appended,
    Change,
    DefinitionsMoved,
    HeadMoved,
    PastTime,
    Producer,
    Publication,
    Retry,
    StoreAway,
    Stored,
    TopicMoved,
    TopicRecord,
    TopicRedefined,
)
from tidegate.conflation.frame import RemovalReason

pytestmark = [pytest.mark.redis, rule("cluster-4", "publish-11")]
NUMBERS = itertools.count()
KEYED = TopicDefinition.parse(b'{"key":["/k"]}')


class Shared:
    """A prefix on a bus, and gateways' stores on it."""

    def __init__(self, server: BusServer) -> None:
        self._server = server
        self._prefix = f"redis-store-{next(NUMBERS)}"
        self.connections: list[BusConnection] = []

    async def store(self) -> RedisStore:
        connection = BusConnection(self._server.url, self._prefix)
        self.connections.append(connection)
        store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
        await store.open()
        await store.records()
        return store


@pytest.fixture
async def shared(redis_bus: BusServer) -> AsyncIterator[Shared]:
    made = Shared(redis_bus)
    yield made
    for connection in made.connections:
        await connection.aclose()


async def heard(store: RedisStore) -> Change:
    """The one definition that was written since; it holds here from now on."""
    [change] = await store.changes()
    store.set_record(change.name, change.record)
    store.mark_applied(change)
    return change


async def put(store: RedisStore, *words: str, topic: str = "px", **more: object) -> None:
    for word in words:
        await store.append(topic, Publication(items_of(word), 1_000))


def items_of(word: str) -> list[Item]:
    """Return messages, and removals of words that begin with `-`."""
    return [
        Message(frame.payload, frame.key)
        if not it.startswith("-")
        else Removal(frame.key, RemovalReason.DELETED)
        for it in word.split()
        for frame in make_frames(it.removeprefix("-"))
    ]


async def test_what_is_kept_is_the_same_wherever_it_is_asked_for(shared: Shared) -> None:
    one = await shared.store()
    await one.put_topic(TopicRecord("px", KEYED, "e1"))
    await put(one, "a1 b1 a2", "c1 -b1", "a3")
    for kept in (await one.load("px"), await (await shared.store()).load("px")):
        assert (kept.head, kept.horizon, kept.dropped_through) == (6, 0, 0)
        assert [(it.key, it.offset, it.removed) for it in kept.records] == [
            ('["c"]', 4, False), ('["b"]', 5, True), ('["a"]', 6, False),
        ]  # fmt: skip
        assert [it.offset for it in kept.journal] == [1, 2, 3, 4, 5, 6]
        assert kept.journal[0].timestamp_ms == 1_000


async def test_of_a_plain_topic_only_the_journal_is_kept(shared: Shared) -> None:
    store = await shared.store()
    await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    await store.append("t", Publication([Message(b"1"), Message(b"2")], 0))
    kept = await store.load("t")
    assert (list(kept.records), [it.payload for it in kept.journal]) == ([], [b"1", b"2"])


@pytest.mark.parametrize(
    ("history", "left"),
    [
        ('{"messages":3,"age":"1h"}', ["b2 c1", "d1 e1"]),
        ('{"messages":4,"bytes":"1KiB"}', ["b2 c1", "d1 e1"]),
        ('{"messages":100,"bytes":"40B"}', ["b2 c1", "d1 e1"]),
        ('{"messages":100,"bytes":"1B"}', ["d1 e1"]),
        ('{"messages":100,"age":"1h"}', ["a1", "b1", "b2 c1", "d1 e1"]),
    ],
)
async def test_the_journal_is_trimmed_by_requests_and_records_stay(
    shared: Shared, history: str, left: list[str]
) -> None:
    store = await shared.store()
    document = TopicDefinition.parse(b'{"key":["/k"],"history":%b}' % history.encode())
    await store.put_topic(TopicRecord("px", document, "e1"))
    for number, word in enumerate(("a1", "b1", "b2 c1", "d1 e1")):
        await store.append("px", Publication(items_of(word), number * 2 * READ_MS))
    kept = await store.load("px")
    assert tokens(kept.journal) == " ".join(left)
    assert tokens(kept.records) == "a1 b2 c1 d1 e1"
    assert kept.dropped_through == 6 - len(kept.journal)


async def test_the_journal_has_what_others_may_still_read_whatever_its_history(
    shared: Shared,
) -> None:
    """Not more than so many messages and bytes: a clock that is ahead makes all of them new."""
    store = await shared.store()
    document = TopicDefinition.parse(b'{"history":{"messages":1}}')
    await store.put_topic(TopicRecord("t", document, "e1"))
    times_ms = [0, 1, READ_MS, READ_MS + 1]
    for at_ms in times_ms:
        await store.append("t", Publication([Message(b"%d" % at_ms)], at_ms))
    assert [it.timestamp_ms for it in (await store.load("t")).journal] == times_ms[1:]
    for payload in (b"1", b"2" * (READ_BYTES // 2), b"3" * (READ_BYTES // 2), b"4"):
        await store.append("t", Publication([Message(payload)], READ_MS + 1))
    assert [it.payload[:1] for it in (await store.load("t")).journal] == [b"3", b"4"]
    await store.append("t", Publication([Message(b"5")] * READ_MESSAGES, READ_MS + 1))
    assert len((await store.load("t")).journal) == READ_MESSAGES


async def test_messages_age_with_those_behind_them(shared: Shared) -> None:
    store = await shared.store()
    document = TopicDefinition.parse(b'{"history":{"age":"3s"}}')
    await store.put_topic(TopicRecord("t", document, "e1"))
    for at_ms in (0, 1_500, 4_200):
        await store.append("t", Publication([Message(b"%d" % at_ms)], at_ms))
    assert [it.payload for it in (await store.load("t")).journal] == [b"1500", b"4200"]


@rule("publish-11")
async def test_a_request_that_the_bound_on_bytes_divides_stays(shared: Shared) -> None:
    """Its newest messages are in the journal of each gateway that runs."""
    store = await shared.store()
    document = TopicDefinition.parse(b'{"history":{"bytes":"4B"}}')
    await store.put_topic(TopicRecord("t", document, "e1"))
    requests = [[b"1"], [b"2", b"3", b"4"], [b"5", b"6"]]
    for number, payloads in enumerate(requests, start=1):
        publication = Publication([Message(it) for it in payloads], number * 2 * READ_MS)
        await store.append("t", publication)
    assert [it.payload for it in (await store.load("t")).journal] == [
        *(b"2", b"3", b"4"),
        *(b"5", b"6"),
    ]


@rule("cluster-13")
async def test_an_entry_that_no_gateway_wrote_is_trimmed_as_others_are(shared: Shared) -> None:
    store = await shared.store()
    document = TopicDefinition.parse(b'{"history":{"bytes":"1B"}}')
    await store.put_topic(TopicRecord("t", document, "e1"))
    await store.append("t", Publication([Message(b"1")], 0))
    [connection] = shared.connections
    stream = connection.topic_key("t", "stream")
    await connection.execute("XADD", stream, "1-5", "x", "y")
    for number in (2, 3):
        appended = await store.append("t", Publication([Message(b"1")], number * 2 * READ_MS))
        assert appended == Appended(number, number)
    assert await connection.execute("XLEN", stream) == 1


async def test_a_writer_whose_lease_was_taken_over_is_refused(shared: Shared) -> None:
    """Also in a topic that its successor has not written to."""
    store = await shared.store()
    await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    [connection] = shared.connections
    for number, fence in ((3, 3), (3, 3), (3, None), (5, 5)):
        await connection.execute("SET", fence_key(connection), number)
        await store.append("t", Publication([Message(b"1")], 0, fence=fence))
    await connection.execute("SET", fence_key(connection), 6)
    # 7 is the number of a leader that a failover has lost.
    for fence in (5, 7):
        with pytest.raises(Refused, match="producer-fenced"):
            await store.append("t", Publication([Message(b"1")], 0, fence=fence))
    assert (await store.append("t", Publication([Message(b"1")], 0, fence=6))).first == 5


async def test_definitions_are_written_by_who_has_seen_all_before(shared: Shared) -> None:
    one, other = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("a", TopicDefinition(), "e1"))
    with pytest.raises(DefinitionsMoved):
        await other.put_topic(TopicRecord("a", KEYED, "e2"))
    assert (await heard(other)).record == TopicRecord("a", TopicDefinition(), "e1")
    assert (await other.append("a", Publication([Message(b"1")], 0))).first == 1
    await other.delete_topic("a")
    change = await heard(one)
    assert (change.name, change.record) == ("a", None)
    assert list(await other.changes()) == []


async def test_what_was_behind_is_not_written_upon(shared: Shared) -> None:
    store = await shared.store()
    doubts: list[str] = []
    store.on_suspect = doubts.append
    await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    await store.append("t", Publication([Message(b"1")], 0))
    store.head_seen = lambda name: 2
    with pytest.raises(Refused, match="bus-unavailable"):
        await store.append("t", Publication([Message(b"1")], 0))
    assert doubts == ["t"]
    assert await store.find_suspects(["t"], store.head_seen) == ["t"]


async def test_all_who_doubt_get_one_other_epoch(shared: Shared) -> None:
    one, other = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    other.set_record("t", TopicRecord("t", TopicDefinition(), "e1"))
    await heard(other)
    await one.append("t", Publication([Message(b"1")], 0))
    assert await one.confirm_epoch("t", seen=1) == "e1", "there is nothing to doubt"
    epoch = await one.confirm_epoch("t", seen=2)
    assert epoch != "e1"
    assert await other.confirm_epoch("t", seen=1) == epoch
    with pytest.raises(Refused, match="bus-unavailable"):
        await other.append("t", Publication([Message(b"2")], 0))
    renewed = TopicRecord("t", TopicDefinition(), epoch)
    await one.put_epoch(renewed)
    one.set_record("t", renewed)
    assert (await one.append("t", Publication([Message(b"2")], 0))).first == 2
    with pytest.raises(TopicMoved):
        await other.append("t", Publication([Message(b"3")], 0))  # it has not taken it over
    await heard(other)
    assert (await other.append("t", Publication([Message(b"3")], 0))).first == 3


async def test_another_topic_takes_the_place_of_one_that_holds_nothing(shared: Shared) -> None:
    """From then on nothing is appended by the old definition, also if the new one stays unknown."""
    one, other = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("px", TopicDefinition(), "e1"))
    await heard(other)
    await one.put_topic(TopicRecord("px", KEYED, "e2"))
    with pytest.raises(TopicMoved):
        await other.append("px", Publication([Message(b"1")], 0))
    with pytest.raises(TopicMoved):
        await other.stage("px", "s", [Message(b"1")], 0)
    assert await other.confirm_epoch("px", seen=0) == "e2"
    assert (await one.append("px", Publication([Message(b"1", '["a"]')], 0))).first == 1
    with pytest.raises(HeadMoved):
        await one.put_topic(TopicRecord("px", TopicDefinition(), "e3"))
    assert (await one.append("px", Publication([Message(b"1", '["a"]')], 0))).first == 2


@rule("cluster-7")
async def test_a_definition_is_held_once_for_those_who_have_not_heard_of_it(shared: Shared) -> None:
    """One who never hears of it must not keep it for ever."""
    one, other = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    await heard(other)
    refused = shared.connections[0].topic_key("t", "refused")
    for number in range(2):
        description = f"change {number}"
        await one.put_topic(TopicRecord("t", TopicDefinition(description=description), "e1"))
        for is_held in (True, False):
            with pytest.raises(TopicMoved):
                await other.append("t", Publication([Message(b"1")], 0))
            assert await shared.connections[0].execute("EXISTS", refused) == is_held
            await shared.connections[0].execute("DEL", refused)  # as when its time is over


@rule("cluster-7")
async def test_a_write_is_decided_again_only_if_its_records_have_changed(shared: Shared) -> None:
    """Else a gateway behind a slow link could never decide while others write other records."""
    store = await shared.store()
    await store.put_topic(TopicRecord("px", KEYED, "e1"))
    await put(store, "a1 b1 c1")

    async def is_taken(word: str, head: int, epoch: str = "e1") -> bool:
        decided = Publication(items_of(word), 1_000, expected_head=head, epoch=epoch)
        try:
            await store.append("px", decided)
        except HeadMoved:
            return False
        return True

    assert await is_taken("a2", 3)
    assert await is_taken("b2", 3), "only another record has changed"
    assert await is_taken("d1", 3), "nothing was removed, so it was not there either"
    assert not await is_taken("a3", 3)
    assert not await is_taken("-a1", 3)
    assert not await is_taken("d2", 3)
    assert await is_taken("-c1", 3)
    assert not await is_taken("c2", 6), "it was there"
    assert not await is_taken("-c1", 6)
    assert not await is_taken("e1", 6), "it may have been there"
    assert await is_taken("b3", 6)
    assert await is_taken("e1", 7)
    assert not await is_taken("e2", 9, "e0"), "another epoch may lack what it was decided by"
    assert (await store.load("px")).head == 9


async def test_what_was_checked_by_an_earlier_definition_is_not_taken(shared: Shared) -> None:
    """The same epoch goes on, and a gateway that has not heard of the change checks by the old."""
    one, other = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("px", KEYED, "e1"))
    await heard(other)
    retry = Publication([Message(b"1", '["a"]')], 0, retry=Retry("r", b"d"))
    assert (await other.append("px", retry)).first == 1
    strict = TopicDefinition.parse(b'{"key":["/k"],"schema":{"required":["v"]}}')
    await one.put_topic(TopicRecord("px", strict, "e1"))
    with pytest.raises(TopicMoved):
        await other.append("px", Publication([Message(b"2", '["a"]')], 0))
    again = await other.append("px", retry)
    assert again.duplicate, "what was taken was taken by the definition of its time"
    await heard(other)
    assert (await other.append("px", Publication([Message(b"2", '["a"]')], 0))).first == 2
    assert (await one.append("px", Publication([Message(b"3", '["a"]')], 0))).first == 3


async def test_a_definition_that_another_version_wrote_is_known_by_its_text(
    shared: Shared,
) -> None:
    one = await shared.store()
    await one.put_topic(TopicRecord("px", KEYED, "e1", text=b'{ "key": ["/k"] }'))
    other = await shared.store()
    [found] = await other.records()
    assert (found.name, found.epoch, found.text) == ("px", "e1", b'{ "key": ["/k"] }')
    assert (await other.append("px", Publication([Message(b"1", '["a"]')], 0))).first == 1


async def test_a_topic_is_loaded_as_current_from_a_server_that_has_its_epoch(
    shared: Shared,
) -> None:
    store = await shared.store()
    record = TopicRecord("px", KEYED, "e1")
    await store.put_topic(record)
    await store.append("px", Publication([Message(b"1", '["a"]')], 0))
    assert await store.load_current(TopicRecord("px", KEYED, "e2")) is None
    loaded = await store.load_current(record)
    assert loaded is not None
    assert loaded == await store.load("px")


async def test_no_topic_is_loaded_in_an_epoch_that_the_server_does_not_have(
    shared: Shared,
) -> None:
    """Another gateway has begun an epoch, which it announces now or at a failover never will."""
    one, store = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("px", KEYED, "e1"))
    await one.append("px", Publication([Message(b"1", '["a"]')], 0))
    await store.records()
    epoch = await one.confirm_epoch("px", seen=2)
    with pytest.raises(TopicMoved):
        await store.load("px")
    await one.put_epoch(TopicRecord("px", KEYED, epoch))
    with pytest.raises(TopicRedefined) as redefined:
        await store.load("px")
    assert redefined.value.stored is not None
    assert redefined.value.stored.epoch == epoch
    assert (await store.load("px")).former == {"e1": 1}


async def test_a_start_announces_an_epoch_that_nobody_has_announced(shared: Shared) -> None:
    """The gateway that began it has died, or was led to another server."""
    one = await shared.store()
    await one.put_topic(TopicRecord("px", KEYED, "e1"))
    await one.append("px", Publication([Message(b"1", '["a"]')], 0))
    epoch = await one.confirm_epoch("px", seen=2)
    store = await shared.store()
    await store.settle_epochs()
    assert [stored.epoch for stored in await store.records()] == [epoch]


async def test_a_start_that_cannot_settle_epochs_ends(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_S_MAX", 0.2)
    one, store = await shared.store(), await shared.store()
    await one.put_topic(TopicRecord("px", KEYED, "e1"))
    epoch = await one.confirm_epoch("px", seen=2)
    put = store.definitions.put

    async def put_late(stored: Stored) -> None:
        await one.put_topic(TopicRecord("another", KEYED, f"e{next(NUMBERS)}"))
        await put(stored)

    monkeypatch.setattr(store.definitions, "put", put_late)
    with pytest.raises(StoreAway, match="has 1 topics of another server"):
        await store.settle_epochs()
    assert epoch != "e1"


async def test_nothing_gets_a_time_before_what_is_stored_or_was_read_as_of_it(
    shared: Shared,
) -> None:
    """A publish that is held up on its way, or by a clock that is behind, comes later."""
    store = await shared.store()
    await store.put_topic(TopicRecord("px", KEYED, "e1"))

    async def stored(time_ms: int) -> int:
        appended = await store.append("px", Publication([Message(b"1", '["a"]')], time_ms))
        loaded = await store.load("px")
        [record] = loaded.records
        assert record == loaded.journal[-1], "a record has the time of its message"
        assert record.offset == appended.last
        return record.timestamp_ms

    assert await stored(1_000) == 1_000
    assert await stored(900) == 1_000
    assert await store.shared_head("px", PastTime(1_500, 1_600)) == 2
    assert await stored(1_200) == 1_501
    assert await store.shared_head("px", PastTime(1_500, 1_600)) == 3
    assert await stored(1_200) == 1_501
    assert await stored(2_000) == 2_000


async def test_a_retry_is_known_through_all_epochs_of_its_topic_and_in_no_other(
    shared: Shared,
) -> None:
    store = await shared.store()
    await store.put_topic(TopicRecord("px", KEYED, "e1"))
    asked = Publication([Message(b"1", '["a"]')], 1_000, retry=Retry("r", b"digest"))
    assert await store.append("px", asked) == Appended(1, 1)
    epoch = await store.confirm_epoch("px", seen=2)
    await store.put_epoch(TopicRecord("px", KEYED, epoch))
    store.set_record("px", TopicRecord("px", KEYED, epoch))
    assert epoch != "e1"
    assert await store.append("px", asked) == Appended(1, 1, duplicate=True)
    await store.delete_topic("px")
    await store.put_topic(TopicRecord("px", KEYED, "e3"))
    assert await store.append("px", asked) == Appended(1, 1)


async def test_what_went_with_its_stream_is_published_when_it_is_sent_again(
    shared: Shared,
) -> None:
    """It is announced to nobody; only an older run stays out."""
    store = await shared.store()
    await store.put_topic(TopicRecord("px", KEYED, "e1"))
    keyed = Publication([Message(b"1", '["a"]')], 1_000, retry=Retry("r", b"digest"))
    numbered = Publication([Message(b"2", '["b"]')], 1_000, Producer("p", 7, run=2))
    for asked in (keyed, numbered):
        await store.append("px", asked)
    await shared.connections[-1].writer.delete(store.log("px").stream)
    epoch = await store.confirm_epoch("px", seen=2)
    await store.put_epoch(TopicRecord("px", KEYED, epoch))
    store.set_record("px", TopicRecord("px", KEYED, epoch))
    assert await store.append("px", keyed) == Appended(3, 3)
    assert await store.append("px", numbered) == Appended(4, 4)
    with pytest.raises(Refused, match="producer-fenced"):
        await store.append("px", Publication([Message(b"3")], 1_000, Producer("p", 8, run=1)))


@pytest.mark.system
@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_another_life_of_the_server_takes_nothing_in_the_epoch_before(fsync: str) -> None:
    with bus_server("redis", "--appendfsync", fsync) as server:
        shared = Shared(server)
        store = await shared.store()
        await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
        await store.append("t", Publication([Message(b"1")], 0))
        server.kill()
        server.start("--appendfsync", fsync)
        with pytest.raises(Refused, match="bus-unavailable"):
            await store.append("t", Publication([Message(b"2")], 0))  # of a broken connection
        for connection in shared.connections:
            await connection.writer.connection_pool.disconnect()
        for read in (store.append("t", Publication([Message(b"2")], 0)), store.shared_head("t")):
            with pytest.raises(TopicMoved):
                await read
        epoch = await store.confirm_epoch("t", seen=1)
        assert epoch != "e1"
        assert await store.confirm_epoch("t", seen=1) == epoch  # as another gateway is told
        with pytest.raises(DefinitionsMoved):  # of the life before, until they are read again
            await store.put_epoch(TopicRecord("t", TopicDefinition(), epoch))
        await store.reopen()
        await store.put_epoch(TopicRecord("t", TopicDefinition(), epoch))
        store.set_record("t", TopicRecord("t", TopicDefinition(), epoch))
        assert (await store.append("t", Publication([Message(b"2")], 0))).first == 2
        assert (await store.load("t")).former == {"e1": 1}
        await store.aclose()


@pytest.mark.system
async def test_an_epoch_whose_life_ended_before_anybody_took_it_over_is_followed() -> None:
    """Redis dies again before the gateway that began an epoch has announced and loaded it."""
    with bus_server("redis") as server:
        shared = Shared(server)
        store = await shared.store()
        record = TopicRecord("t", TopicDefinition(), "e1")
        await store.put_topic(record)
        await store.append("t", Publication([Message(b"1")], 0))
        epochs = ["e1"]
        for _ in range(2):
            server.kill()
            server.start()
            for connection in shared.connections:
                await connection.writer.connection_pool.disconnect()
            epochs.append(await store.confirm_epoch("t", seen=1))
            assert await store.confirm_epoch("t", seen=1) == epochs[-1]
        assert len(set(epochs)) == 3
        restored = await store.load_current(replace(record, epoch=epochs[-1]))
        assert restored is not None
        assert restored.former == {"e1": 1, epochs[1]: 1}
        await store.aclose()


async def test_half_a_publish_of_an_ended_epoch_ends_the_epoch_that_it_came_into(
    shared: Shared,
) -> None:
    """Redis ran it at its start, from the middle of a file that it had shortened there."""
    store = await shared.store()
    record = TopicRecord("px", KEYED, "e2")
    await store.put_topic(record)
    log, connection = store.log("px"), shared.connections[-1]
    for offset, epoch in ((1, "e1"), (2, "e1"), (3, "e2"), (4, "e2")):
        fields = "e", epoch, "f", offset, "t", "0", "b", "0", "i", pack([Message(b"1")])
        await connection.execute("XADD", log.stream, f"{offset}-0", *fields)
    another_life = "HSET", log.keys[0], "former", "e1:2", "head", "4", "life"
    await connection.execute(*another_life, "before")
    whole = await store.confirm_epoch("px", seen=4)
    restored = await store.load_current(replace(record, epoch=whole))
    assert restored is not None
    assert (restored.former, len(restored.journal)) == ({"e1": 2, "e2": 4}, 4)
    await connection.execute("XDEL", log.stream, "3-0")
    # As its entry has the place of others, Redis has refused these: the head is before it.
    await connection.execute(*another_life, "and another", "former", "e1:1", "head", "3")
    another = await store.confirm_epoch("px", seen=4)
    restored = await store.load_current(replace(record, epoch=another))
    assert restored is not None
    assert restored.former == {"e1": -1, "e2": -1, whole: -1}
    assert not restored.journal
    assert restored.head == 4, "of its records some may be there"


async def test_an_epoch_continues_no_more_than_each_epoch_after_it(shared: Shared) -> None:
    store = await shared.store()
    await store.put_topic(TopicRecord("t", TopicDefinition(), "e4"))
    state = store.log("t").keys[0]
    await shared.connections[-1].writer.hset(state, "former", "e1:56 e2:40 e3:-1 e5:70 e6:90")
    former = (await store.load("t")).former
    assert former == {"e1": -1, "e2": -1, "e3": -1, "e5": 70, "e6": 90}


async def test_while_the_bus_is_out_nobody_is_kept_waiting(shared: Shared) -> None:
    store = await shared.store()
    await store.put_topic(TopicRecord("t", TopicDefinition(), "e1"))
    store.is_unavailable = lambda: True
    with pytest.raises(Refused, match="bus-unavailable"):
        await store.append("t", Publication([Message(b"1")], 0))
    store.is_unavailable = lambda: False
    assert (await store.append("t", Publication([Message(b"1")], 0))).first == 1


@pytest.mark.system
async def test_a_bus_that_is_away_for_a_moment_at_the_start_is_waited_for() -> None:
    with bus_server("redis") as server:
        server.kill()
        shared = Shared(server)
        opening = asyncio.create_task(shared.store())
        await asyncio.sleep(0.3)
        assert not opening.done()
        server.start()
        store = await opening
        await store.aclose()


async def test_a_bus_that_stays_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.cluster.redis_store.OPEN_S_MAX", 0.2)
    connection = BusConnection("unix:///nowhere/at/all.sock")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    reason = r"^Redis at /nowhere/at/all\.sock does not answer: No such file or directory$"
    with pytest.raises(StoreAway, match=reason):
        await store.open()


@pytest.mark.parametrize("is_dry", [False, True])
async def test_a_bus_that_goes_away_in_the_middle_of_a_start_is_away(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_dry: bool
) -> None:
    """A supervisor starts the gateway again, which a setting that is wrong would not allow."""

    async def is_gone(store: RedisStore) -> Sequence[Stored]:
        raise Unavailable

    monkeypatch.setattr(RedisStore, "records", is_gone)
    settings = edge_settings(redis=redis_bus.url, topics=str(tmp_path))
    gateway = create_app(settings).state.gateway
    with pytest.raises(StoreAway, match="unavailable"):
        await (gateway.open_store() if is_dry else gateway.open())
    await gateway.aclose()
