"""Definitions that other gateways make, change and delete hold here, atomically for who subscribes.

Rule cluster-4 is tested here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.faults.setups.children import RedisChild
from tests.faults.setups.gateway import redis_binary
from tests.support.buses import BusServer, define_elsewhere, document, gateways, has_topic
from tests.support.deadlines import HANGS_S
from tests.support.gateways import NDJSON, Remote, Running, eventually, running_gateway
from tests.support.network.fault_proxy import FaultProxy, Line, fault_proxy
from tests.support.rules import rule
from tidegate.app.cluster.definition_sync import DefinitionSync
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.store import Appended, TopicRecord
from tidegate.app.topics.writer import REMOVED_AT_ONCE
from tidegate.conflation.frame import RestoredTopic

pytestmark = [pytest.mark.redis, rule("cluster-4")]
STARVED_S = 60.0


async def test_definitions_hold_everywhere(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.subscribe() as stream:
            await stream.until("group_end")
            await one.topic(description="prices")
            await eventually(
                lambda: other.gateway.catalog.get("px").document.description == "prices",
                "the description is known",
            )
            await one.publish({"k": "a", "v": 1})
            assert await stream.values(1) == [{"k": "a", "v": 1}]
            await one.http.delete("/v1/topics/px")
            event = await document(stream, "unsubscribed")
            assert event["reason"] == "REMOVED"
        assert other.gateway.catalog.find("px") is None


@contextlib.contextmanager
def nobody_following() -> Iterator[asyncio.Event]:
    """No gateway follows definitions by itself until the event is set."""
    sync, goes_on = DefinitionSync.sync, asyncio.Event()

    async def held_sync(definitions: DefinitionSync) -> None:
        task = asyncio.current_task()
        if task is not None and task.get_name() == "follow definitions":
            await goes_on.wait()
        await sync(definitions)

    with mock.patch.object(DefinitionSync, "sync", held_sync):
        yield goes_on


async def test_a_changed_definition_binds_a_gateway_that_has_not_heard_of_it(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        with nobody_following() as goes_on:
            await one.topic(schema={"properties": {"v": {"type": "number"}}})
            refused = await other.http.post("/v1/topics/px/messages", json={"k": "a", "v": "x"})
            assert (refused.status_code, refused.json()["code"]) == (422, "schema-violation")
            await one.topic(schema={"properties": {"v": {"type": "string"}}})
            await other.publish({"k": "a", "v": "x"})
            for path, name in (("/v1/topics/px", "new"), ("/v1/topics", "newer")):
                await one.topic(description=name)
                assert f'"description":"{name}"' in (await other.http.get(path)).text
            goes_on.set()


@rule("cluster-7")
async def test_what_would_change_nothing_is_compared_with_the_newest_definition(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        path, known = "/v1/topics/px", {"key": ["/k"]}
        with nobody_following() as goes_on:
            await one.topic(description="new")
            assert (await other.http.put(path, json=known)).status_code == 200
            await one.topic(description="newer")
            patched = await other.http.patch(
                path,
                json={"description": ""},
                headers={"Content-Type": "application/merge-patch+json"},
            )
            assert patched.status_code == 200
            assert (await one.http.get(path)).json()["description"] == ""
            assert (await one.http.delete(path)).status_code == 204
            assert (await other.http.put(path, json=known)).status_code == 201
            await one.publish({"k": "a"})
            goes_on.set()


async def test_a_look_that_finds_nothing_new_holds_no_change_up(redis_bus: BusServer) -> None:
    """The log reader repairs topics only while nobody holds `changing`."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.gateway.catalog.changing, asyncio.timeout(HANGS_S):
            assert (await other.http.get("/v1/topics/px")).status_code == 200
            assert (await other.http.get("/v1/topics")).status_code == 200


async def test_two_who_make_the_same_topic_make_one(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        for number in range(5):
            name = f"t{number}"
            shown = await asyncio.gather(
                one.publish({"v": 1}, topic=name), other.publish({"v": 2}, topic=name)
            )
            epochs, offsets = zip(*(each["last"].split("-") for each in shown), strict=True)
            assert len(set(epochs)) == 1
            assert set(offsets) == {"1", "2"}


async def test_a_change_of_identity_elsewhere_ends_what_was_subscribed(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.subscribe() as stream:
            await stream.until("group_end")
            await one.topic(key=["/other"])
            assert (await document(stream, "unsubscribed"))["reason"] == "REMOVED"
        await eventually(
            lambda: str(other.gateway.catalog.get("px").document.key_spec) == "[/other]",
            "the other key is known",
        )


async def test_who_changes_what_another_has_just_changed_decides_beside_that(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        await asyncio.gather(
            one.http.patch("/v1/topics/px", json={"description": "d"}),
            other.http.patch("/v1/topics/px", json={"priority": "high"}),
        )
        entries = [gateway.gateway.catalog.get("px") for gateway in (one, other)]
        both = ("d", "high")
        await eventually(
            lambda: all((it.document.description, it.document.priority) == both for it in entries),
            "both changes hold",
        )


def store_of(gateway: Running) -> RedisStore:
    """What a gateway asks of the bus."""
    assert gateway.gateway.bus is not None
    return gateway.gateway.bus.store


async def keys_of(*gateways: Remote) -> list[list[str]]:
    """What each of them tells of the topic."""
    return [(await it.http.get("/v1/topics/px")).json()["key"] for it in gateways]


async def has_key(gateway: Running, pointer: str) -> None:
    """Wait until a change of key is known."""
    catalog = gateway.gateway.catalog
    await eventually(
        lambda: str(catalog.get("px").document.key_spec) == f"[{pointer}]", f"{pointer} is known"
    )


async def test_who_has_heard_of_a_change_of_key_but_not_taken_it_over_answers_by_it(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was checked by the old definition never gets into the new epoch."""
    async with gateways(redis_bus) as (one, other):
        await one.topic(key=["/id"])
        await has_topic(other)
        store, heard, go_on = store_of(other), asyncio.Event(), asyncio.Event()
        doubts: list[str] = []
        kept_as, doubt = store.load_current, store.on_suspect

        async def held(record: TopicRecord) -> RestoredTopic | None:
            heard.set()
            await go_on.wait()
            return await kept_as(record)

        def doubted(name: str) -> None:
            doubts.append(name)
            doubt(name)

        monkeypatch.setattr(store, "load_current", held)
        monkeypatch.setattr(store, "on_suspect", doubted)
        await one.topic(key=["/z"])
        await heard.wait()
        path = "/v1/topics/px/messages"
        posting = asyncio.create_task(other.http.post(path, json={"id": 1}))
        await eventually(lambda: bool(doubts) or posting.done(), "it is refused")
        go_on.set()
        answer = await posting
        assert (answer.status_code, answer.json()["code"]) == (422, "key-missing")
        assert await keys_of(one, other) == [["/z"], ["/z"]]
        assert [await it.sow() for it in (one, other)] == [[], []]


async def test_a_change_of_key_holds_at_once_for_who_publishes_elsewhere(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        for _ in range(10):
            await one.topic(key=["/id"])
            await has_topic(other)
            await has_key(other, "/id")
            await one.topic(key=["/z"])
            answer = await other.http.post("/v1/topics/px/messages", json={"id": 1})
            assert (answer.status_code, answer.json()["code"]) == (422, "key-missing")
            await has_key(other, "/z")
            assert await keys_of(one, other) == [["/z"], ["/z"]]
        await other.publish({"z": 1})
        assert await other.sow() == [{"z": 1}]


async def test_a_message_that_another_takes_in_meanwhile_keeps_the_key(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic(key=["/id"])
        await has_topic(other)
        store = store_of(one)
        put_topic = store.put_topic

        async def late(record: TopicRecord, mark: str = "") -> None:
            await other.publish({"id": 1})
            await put_topic(record, mark)

        monkeypatch.setattr(store, "put_topic", late)
        answer = await one.http.put("/v1/topics/px", json={"key": ["/z"]})
        assert (answer.status_code, answer.json()["code"]) == (409, "topic-conflict")
        monkeypatch.undo()
        await one.publish({"id": 2})
        assert await one.sow() == [{"id": 1}, {"id": 2}]
        assert await keys_of(one, other) == [["/id"], ["/id"]]


@rule("topic-3")
async def test_a_message_that_another_takes_in_meanwhile_keeps_a_source_away(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic("source")
        await one.topic()
        await has_topic(other)
        store = store_of(one)
        put_topic = store.put_topic

        async def late(record: TopicRecord, mark: str = "") -> None:
            await other.publish({"k": "a"})
            await put_topic(record, mark)

        monkeypatch.setattr(store, "put_topic", late)
        change = {"source": {"topic": "source", "interval": "100ms"}}
        answer = await one.http.patch("/v1/topics/px", json=change)
        assert (answer.status_code, answer.json()["code"]) == (409, "topic-conflict")
        monkeypatch.undo()
        await one.publish({"k": "b"})
        assert await one.sow() == [{"k": "a"}, {"k": "b"}]


async def test_a_pattern_has_a_topic_that_is_made_elsewhere_from_its_beginning(
    redis_bus: BusServer,
) -> None:
    async with (
        gateways(redis_bus) as (one, other),
        one.subscribe(topic="g0.*") as stream,
    ):
        async with one.gateway.catalog.changing:  # it hears of nothing meanwhile
            await other.publish({"v": 1}, topic="g0.x")
            await other.publish({"v": 2}, topic="g0.x")
        assert (await document(stream, "subscribed"))["topic"] == "g0.x"
        shown: list[int] = []
        while len(shown) < 2:
            rows = (await document(stream, "message"))["rows"]
            shown += [row["value"]["v"] for row in rows]
        assert shown == [1, 2]


STAGED = {**NDJSON, "Tidegate-Stage": "s", "Tidegate-Producer": "p"}
COMMIT = {"producer": "p", "run": 1, "sequence": 1, "stages": ["s"]}


@rule("cluster-7")
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (("POST", "messages", {"content": b'{"id":1}', "headers": NDJSON}), (422, "key-missing")),
        (("POST", "messages", {"content": b'{"z":1}', "headers": NDJSON}), (200, None)),
        (("POST", "messages", {"content": b'{"id":1}', "headers": STAGED}), (422, "key-missing")),
        (("POST", "messages", {"content": b'{"z":1}', "headers": STAGED}), (201, None)),
        (("POST", "commits", {"json": COMMIT}), (412, "precondition-failed")),
    ],
)
async def test_whatever_is_written_goes_by_a_key_that_has_just_changed(
    redis_bus: BusServer,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[str, str, dict[str, Any]],
    shown: tuple[int, str | None],
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic(key=["/id"])
        path = "/v1/topics/px"
        old = await other.http.post(f"{path}/messages", content=b'{"id":1}', headers=STAGED)
        assert old.status_code == 201
        await one.topic(key=["/z"])
        method, what, words = asked
        answer = await other.http.request(method, f"{path}/{what}", **words)
        assert (answer.status_code, answer.json().get("code")) == shown, answer.text
        if answer.status_code == 201:
            committed = await one.http.post(f"{path}/commits", json=COMMIT)
            assert committed.status_code == 200, committed.text
            assert await one.sow() == [{"z": 1}]


@rule("cluster-7")
async def test_what_is_removed_is_of_the_topic_that_is_there(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic(key=["/id"])
        await other.publish({"id": 1})
        await one.http.delete("/v1/topics/px")
        await one.topic(key=["/z"])
        answer = await other.http.delete("/v1/topics/px/sow", params={"filter": "TRUE"})
        assert (answer.status_code, answer.json()) == (200, {"deleted": 0}), answer.text


@rule("cluster-7")
async def test_records_that_are_deleted_count_also_across_a_change_of_the_definition(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await one.publish(*({"k": number} for number in range(REMOVED_AT_ONCE + 1)))
        writer, calls = one.gateway.writer, itertools.count(1)
        write = writer.write_decided

        async def behind_a_change(*given: Any, **more: Any) -> Appended | None:
            if next(calls) == 2:
                changed = await other.http.patch("/v1/topics/px", json={"description": "d"})
                assert changed.status_code == 200
            return await write(*given, **more)

        monkeypatch.setattr(writer, "write_decided", behind_a_change)
        answer = await one.http.delete("/v1/topics/px/sow", params={"filter": "TRUE"})
        assert (answer.status_code, answer.json()) == (200, {"deleted": REMOVED_AT_ONCE + 1})


@rule("cluster-7")
async def test_a_topic_that_was_just_made_elsewhere_is_known_to_who_asks_for_it(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus, auto_create_topics=False) as (one, other):
        names = (f"t{number}" for number in itertools.count())

        async def made(**document: Any) -> str:
            name = next(names)
            await one.topic(name, **document)
            return name

        async with other.subscribe(topic=await made()) as stream:
            await stream.until("group_end")
        await other.publish({"k": 1}, topic=await made())
        text = await made(key=[], type="text")
        path = f"/v1/topics/{text}/messages"
        words = {"Content-Type": "text/plain"}
        assert (await other.http.post(path, content=b"a", headers=words)).status_code == 200
        assert await other.sow(await made()) == []
        for path in ("", "/messages"):
            assert (await other.http.get(f"/v1/topics/{await made()}{path}")).status_code == 200
        lanes = await other.http.get("/v1/lanes", params={"topic": await made()})
        assert lanes.status_code == 200
        explained = await other.http.post("/v1/explain", json={"topic": await made()})
        assert explained.status_code == 200
        opened = await other.http.post(
            "/v1/sessions", json={"subscriptions": [{"topic": await made()}]}
        )
        assert opened.status_code == 201, opened.text
        added = await other.http.post(
            f"/v1/sessions/{opened.json()['session']}/subscriptions", json={"topic": await made()}
        )
        assert added.status_code == 201, added.text
        commit = {"producer": "p", "run": 1, "sequence": 1, "stages": ["s"]}
        answer = await other.http.post(f"/v1/topics/{await made()}/commits", json=commit)
        assert answer.json()["code"] == "precondition-failed"
        changed = await other.http.patch(f"/v1/topics/{await made()}", json={"description": "d"})
        assert changed.status_code == 200
        assert (await other.http.delete(f"/v1/topics/{await made()}")).status_code == 204
        await other.topic("slow", source={"topic": await made(), "interval": "1s"})
        answer = await other.http.get("/v1/topics/nowhere")
        assert (answer.status_code, answer.json()["code"]) == (404, "topic-unknown")


async def test_nothing_is_refused_for_a_definition_that_has_changed_by_then(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        for number in range(3):
            asked = {"description": str(number)}
            gateway = (one, other)[number % 2]
            tag = (await gateway.http.get("/v1/topics/px")).headers["etag"]
            changed = await gateway.http.patch("/v1/topics/px", json=asked)
            match = {"If-Match": changed.headers["etag"]}
            elsewhere = (other, one)[number % 2]
            again = await elsewhere.http.patch(
                "/v1/topics/px", json={"priority": ("high", "low", "high")[number]}, headers=match
            )
            assert again.status_code == 200, again.text
            stale = await gateway.http.patch(
                "/v1/topics/px", json={"priority": "default"}, headers={"If-Match": tag}
            )
            assert stale.status_code == 412


async def test_a_change_that_could_not_be_taken_over_is_taken_over_later(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        store = store_of(other)
        kept_as, failures = store.load_current, iter((OSError("once"), RuntimeError("twice")))

        async def failing(record: TopicRecord) -> RestoredTopic | None:
            for failure in failures:
                raise failure
            return await kept_as(record)

        monkeypatch.setattr(store, "load_current", failing)
        await one.topic()
        await has_topic(other)
        assert list(failures) == []


@rule("topic-15")
async def test_a_topic_that_was_taken_over_while_the_bus_went_away_is_served_later(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus, 1) as (one,):
        await one.topic()
        await one.publish({"k": "a"})
        store, catalog = store_of(one), one.gateway.catalog
        epoch = catalog.get("px").record.epoch
        await define_elsewhere(store._connection, "px", epoch, b'{"key":["/k"],"merge":"no:such"}')
        await eventually(lambda: catalog.unusable("px") is not None, "it cannot be used any more")
        load, failures = store.load_current, iter((Unavailable(),))

        async def failing(record: TopicRecord) -> RestoredTopic | None:
            for failure in failures:
                raise failure
            return await load(record)

        monkeypatch.setattr(store, "load_current", failing)
        answer = await one.http.put("/v1/topics/px", json={"key": ["/k"]})
        assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
        await eventually(lambda: catalog.served("px") is not None, "it is served")
        await one.publish({"k": "b"})
        assert await one.sow() == [{"k": "a"}, {"k": "b"}]


async def test_a_new_topic_is_loaded_only_from_a_server_that_has_its_epoch(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old primary may have the topic as well, with messages of an earlier epoch."""
    async with gateways(redis_bus) as (one, other):
        store = store_of(other)
        load, others = store.load_current, iter((None,))

        async def of_an_old_primary_first(record: TopicRecord) -> RestoredTopic | None:
            for found in others:
                return found
            return await load(record)

        monkeypatch.setattr(store, "load_current", of_an_old_primary_first)
        await one.topic()
        await one.publish({"k": "a"})
        await has_topic(other)
        assert list(others) == []
        await other.publish({"k": "b"})
        assert await other.sow() == [{"k": "a"}, {"k": "b"}]


async def test_a_bus_that_could_not_be_taken_as_it_is_is_taken_later(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        store = store_of(other)
        kept_as, failures = store.load_current, iter((RuntimeError("once"),))

        async def failing(record: TopicRecord) -> RestoredTopic | None:
            for failure in failures:
                raise failure
            return await kept_as(record)

        monkeypatch.setattr(store, "load_current", failing)
        store.definitions.invalidate()  # as of a bus that has lost something
        await has_topic(other)
        assert list(failures) == []


async def test_a_topic_that_is_new_here_has_what_was_published_in_earlier_epochs(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await one.publish({"k": "a", "v": 1})
        epoch = await store_of(one).confirm_epoch("px", seen=2)
        await eventually(
            lambda: one.gateway.catalog.get("px").record.epoch == epoch, "it has begun again"
        )
        await one.publish({"k": "b", "v": 2})
        store_of(other).definitions.invalidate()  # as of another life of the bus
        await has_topic(other)
        await eventually(
            lambda: other.gateway.driver.engine.topic("px").head == 2, "the other has read it"
        )
        assert await other.sow() == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
        bookmark = f"{epoch}-1"
        answers = [
            (await it.http.get("/v1/topics/px/messages", params={"from": bookmark})).text
            for it in (one, other)
        ]
        assert answers[0] == answers[1]


async def test_a_topic_that_was_found_and_deleted_since_can_be_created(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The definitions were read, and Redis failed before they were applied."""
    monkeypatch.setattr(DefinitionSync, "run", asyncio.Event().wait)  # nothing is heard by itself
    async with gateways(redis_bus) as (one, other):
        await one.topic(key=["/k"])
        await one.topic("later", key=["/k"])
        await store_of(other).records()
        assert (await one.http.delete("/v1/topics/px")).status_code == 204
        store_of(other).definitions.invalidate()  # as after an attempt that failed
        await has_topic(other, "later")
        answer = await other.http.put("/v1/topics/px", json={"key": ["/id"]})
        assert answer.status_code == 201, answer.text


@pytest.mark.system
@rule("cluster-7")
@pytest.mark.nightly
async def test_a_publisher_behind_a_slow_link_is_not_starved_by_changes_of_its_topic(
    tmp_path: Path,
) -> None:
    """Each try takes longer than another gateway takes for the next change."""
    async with contextlib.AsyncExitStack() as stack:
        near, far, link = await stack.enter_async_context(near_and_far(tmp_path))
        await near.topic()
        await has_topic(far)
        slow = Line(latency_s=0.1)
        link.carry(up=slow, down=slow)
        changes = itertools.count()

        async def change() -> None:
            while True:
                await near.topic(description=f"change {next(changes)}")

        changing = asyncio.create_task(change())
        stack.callback(changing.cancel)
        async with asyncio.timeout(STARVED_S):
            for number in range(3):
                await far.publish({"k": "a", "v": number})
        assert not changing.done()
        assert next(changes) > 3, "changes go on, too"


@contextlib.asynccontextmanager
async def near_and_far(folder: Path) -> AsyncIterator[tuple[Running, Running, FaultProxy]]:
    """Two gateways on one Redis, and the link of the second."""
    async with contextlib.AsyncExitStack() as stack:
        redis = RedisChild(redis_binary(), folder, "everysec")
        await stack.enter_async_context(redis)
        await redis.start()
        link = await stack.enter_async_context(fault_proxy("127.0.0.1", redis.port))
        near = await stack.enter_async_context(running_gateway(redis=redis.url))
        address = f"redis://127.0.0.1:{link.port}/0"
        far = await stack.enter_async_context(
            running_gateway(redis=address, auto_create_topics=False)
        )
        yield near, far, link


@pytest.mark.system
async def test_a_deletion_whose_gateway_loses_its_link_holds_everywhere(tmp_path: Path) -> None:
    """Each command is on its way for so long that the link ends right after the definition."""
    async with near_and_far(tmp_path) as (near, far, link):
        await near.topic()
        await near.publish({"k": "a", "v": 1})
        await has_topic(far)
        link.carry(up=Line(latency_s=0.5))
        deleting = asyncio.create_task(far.http.delete("/v1/topics/px"))
        await eventually(lambda: near.gateway.catalog.find("px") is None, "it is gone")
        link.reset()
        link.clear()
        assert (await deleting).status_code in {204, 503}
        await eventually(lambda: far.gateway.catalog.find("px") is None, "it is gone here, too")
        await near.topic()
        await has_topic(far)
        assert [await gateway.sow() for gateway in (near, far)] == [[], []]


@pytest.mark.system
async def test_a_topic_whose_gateway_loses_its_link_is_there_everywhere(tmp_path: Path) -> None:
    """What others publish to it stays when its definition is sent once more."""
    async with near_and_far(tmp_path) as (near, far, link):
        link.carry(up=Line(latency_s=0.5))
        path, asked = "/v1/topics/px", {"key": ["/k"]}
        creating = asyncio.create_task(far.http.put(path, json=asked))
        await has_topic(near)
        link.reset()
        link.clear()
        assert (await creating).status_code in {201, 503}
        await near.publish({"k": "a", "v": 1})
        await has_topic(far)
        while (again := await far.http.put(path, json=asked)).status_code == 503:
            await asyncio.sleep(0.05)  # the link is not back yet, so nobody knows
        assert again.status_code == 200
        assert await near.sow() == [{"k": "a", "v": 1}]
