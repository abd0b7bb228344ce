"""Several gateways on one bus: what one takes in all have, and who subscribes may be anywhere.

Rules cluster-6 and cluster-7 are tested here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any
from unittest import mock

import httpx2
import pytest

from tests.support.buses import PREFIXES, BusServer, document, gateways, has_topic
from tests.support.children import serving
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream, client_of, eventually, running_gateway
from tests.support.rules import rule
from tidegate.app.calls import Call, Reply
from tidegate.app.cluster.log_reader import Doubt
from tidegate.app.cluster.topic_log import TopicLog
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.items import Message
from tidegate.app.stores.store import Appended, Fill, HeadMoved, PastTime, Publication
from tidegate.app.streams.session import State
from tidegate.app.timers import wall_ms
from tidegate.app.topics import writer
from tidegate.app.topics.append_waiters import PATIENCE_S
from tidegate.conflation.frame import Frame
from tidegate.conflation.topics.topic import Topic

pytestmark = [pytest.mark.redis, rule("cluster-6", "cluster-7")]


async def test_what_one_takes_in_a_subscriber_of_another_gets(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.subscribe("conflation=none") as stream:
            await stream.until("group_end")
            shown = await one.publish({"k": "a", "v": 1}, {"k": "b", "v": 2})
            assert await stream.values(2) == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
            assert stream.last_id == shown["last"]
        await other.publish({"k": "a", "v": 3})
        assert {row["v"] for row in await other.sow()} == {2, 3}


async def test_a_publish_is_in_the_state_of_the_world_of_its_gateway_at_once(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        for number, gateway in enumerate([one, other] * 20):
            await gateway.publish({"k": "a", "v": number})
            assert await gateway.sow() == [{"k": "a", "v": number}]


@rule("publish-2")
async def test_a_numbered_duplicate_is_in_the_state_of_the_world_of_its_gateway_too(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as both:
        await both[0].topic()
        await has_topic(both[1])

        async def shown(gateway: Running, number: int) -> list[Any]:
            sender = {"Tidegate-Producer": "writer", "Tidegate-Sequence": str(number)}
            sent = {"k": "a", "v": number}
            answer = await gateway.http.post("/v1/topics/px/messages", json=sent, headers=sender)
            assert answer.status_code == 200, answer.text
            return await gateway.sow()

        for number in range(1, 60):
            found = await asyncio.gather(*(shown(gateway, number) for gateway in both))
            assert found == [[{"k": "a", "v": number}]] * 2


@rule("cluster-8")
async def test_a_connection_that_was_given_up_takes_no_session(redis_bus: BusServer) -> None:
    """A gateway that was frozen reads a request whose client has gone on at another one."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        opened = await one.http.post("/v1/sessions", json={"subscriptions": [{"topic": "px"}]})
        session = opened.json()["session"]
        path = f"/v1/sessions/{session}/events"
        async with one.http.stream("GET", path) as answer:
            reader = Stream(answer)
            await reader.until("group_end")
            url = httpx2.URL(other.address)
            with socket.create_connection((url.host, url.port)) as given_up:
                request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {session}-1"
                given_up.sendall(f"{request}\r\n\r\n".encode())
            await asyncio.sleep(0.5)
            assert one.gateway.sessions.get(session).state is State.ATTACHED
            await one.publish({"k": "a"})
            [delivered] = await reader.values(1)
            assert [row["value"] for row in delivered["rows"]] == [{"k": "a"}]


@rule("cluster-8")
async def test_of_readers_that_come_at_several_gateways_at_once_one_is_served(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus, 3) as all_three:
        await all_three[0].topic()
        for each in all_three:
            await has_topic(each)
        for number in range(10):
            asked = {"subscriptions": [{"topic": "px"}]}
            opened = await all_three[number % 3].http.post("/v1/sessions", json=asked)
            session = opened.json()["session"]
            path = f"/v1/sessions/{session}/events"
            readers = [asyncio.create_task(status_at_end(each, path)) for each in all_three]
            async with asyncio.timeout(HANGS_S):
                while len([each for each in readers if not each.done()]) > 1:
                    await asyncio.sleep(0.01)
            ended = [each.result() for each in readers if each.done()]
            assert 404 not in ended, "the session was there all the time"
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            await all_three[0].http.delete(f"/v1/sessions/{session}")


@rule("session-7")
async def test_the_record_of_a_session_tells_what_its_present_gateway_says(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before has still to write that its reader has left."""
    monkeypatch.setattr("tidegate.app.topics.system_topics.TOGETHER_S", 0.3)
    async with gateways(redis_bus) as (one, other):
        opened = await one.http.post("/v1/sessions")
        session = opened.json()["session"]
        path, known = f"/v1/sessions/{session}/events", one.gateway.sessions.get(session)
        async with one.http.stream("GET", path) as answer:
            await Stream(answer).until("hello")
        await eventually(lambda: known.state is State.AWAY, "its reader has left")
        async with other.http.stream("GET", path) as answer:
            reader = Stream(answer)
            await reader.until("hello")
            await asyncio.sleep(1.0)
            rows = {row["session"]: row for row in await other.sow("tidegate.sessions")}
            assert rows[session]["gateway"] == other.gateway.id
            assert rows[session]["state"] == State.ATTACHED


async def status_at_end(gateway: Running, path: str) -> int:
    """Read a stream to its end, and return its status."""
    async with gateway.http.stream("GET", path) as answer:
        await answer.aread()
        return answer.status_code


@rule("archive-6")
async def test_a_past_time_has_one_state_at_every_gateway(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as both:
        await both[0].topic()
        await has_topic(both[1])
        async with held_reader(both[1]) as goes_on:
            await both[0].publish({"k": "a", "v": 1})
            past_ms = wall_ms()
            while wall_ms() == past_ms:
                await asyncio.sleep(0.001)

            async def found(gateway: Running) -> Any:
                return (await gateway.http.get(f"/v1/topics/px/sow?as_of={past_ms}")).json()

            behind = asyncio.create_task(found(both[1]))
            assert await found(both[0]) == {"k": "a", "v": 1}
            assert not behind.done()
            goes_on.set()
            assert await behind == {"k": "a", "v": 1}


@rule("archive-6")
@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 3_600_000])
async def test_a_past_time_has_one_state_also_where_a_clock_is_wrong(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        monkeypatch.setattr(other.gateway.driver, "wall_ms", lambda: wall_ms() + ahead_ms)

        async def found(gateway: Running, at_ms: int) -> Any:
            return (await gateway.http.get(f"/v1/topics/px/sow?as_of={at_ms}")).json()

        for number, gateway in enumerate((one, other, one, other)):
            await gateway.publish({"k": "a", "v": number})
            at_ms = wall_ms() + max(
                0, ahead_ms
            )  # past for one of them, of which it may have a time
            while wall_ms() + max(0, ahead_ms) == at_ms:
                await asyncio.sleep(0.001)
            seen = await found(other, at_ms)
            assert seen == {"k": "a", "v": number}
            for later in (one, other)[:: 1 if number % 2 else -1]:
                await later.publish({"k": "a", "v": "later"})
            assert await found(one, at_ms) == seen
            assert await found(other, at_ms) == seen


async def test_a_stream_is_resumed_at_another_gateway_by_changes(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await one.publish({"k": "a", "v": 1}, {"k": "b", "v": 1})
        async with one.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            seen = stream.last_id
        await one.publish({"k": "b", "v": 2})
        await has_topic(other)
        head = one.gateway.driver.engine.topic("px").head
        await eventually(
            lambda: other.gateway.driver.engine.topic("px").head == head, "all has arrived"
        )
        async with other.subscribe("conflation=10ms", last_id=seen) as stream:
            assert (await document(stream, "resumed"))["mode"] == "changes"
            assert await stream.values(1) == [{"k": "b", "v": 2}]


async def test_a_gateway_that_starts_later_has_all_of_it(redis_bus: BusServer) -> None:
    prefix = next(PREFIXES)
    given = {"redis": redis_bus.url, "redis_prefix": prefix}
    async with running_gateway(**given) as one:
        await one.topic()
        await one.publish(*({"k": str(number % 3), "v": number} for number in range(9)))
        await one.http.delete("/v1/topics/px/sow", params={"key": '["0"]'})
        async with one.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            seen = stream.last_id
        async with running_gateway(**given) as other:
            assert await other.sow() == [{"k": "1", "v": 7}, {"k": "2", "v": 8}]
            await other.publish({"k": "1", "v": 10})
    async with (
        running_gateway(**given) as third,
        third.subscribe("conflation=10ms", last_id=seen) as stream,
    ):
        assert (await document(stream, "resumed"))["mode"] == "changes"
        assert await stream.values(1) == [{"k": "1", "v": 10}]


async def test_deltas_from_two_sides_build_one_record(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)

        async def patch(gateway: Running, field: str) -> None:
            for number in range(10):
                answer = await gateway.http.post(
                    "/v1/topics/px/messages",
                    content=json.dumps({"k": "a", f"{field}{number}": number}),
                    headers={"Content-Type": "application/merge-patch+json"},
                )
                assert answer.status_code == 200, answer.text

        await asyncio.gather(patch(one, "x"), patch(other, "y"))
        topics = [it.gateway.driver.engine.topic("px") for it in (one, other)]
        await eventually(lambda: all(it.head == 20 for it in topics), "both have all")
        for gateway in (one, other):
            [record] = await gateway.sow()
            assert len(record) == 21


async def test_a_delta_that_others_overtake_for_too_long_is_refused(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile others publish to the topic at its gateway."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        append = other.gateway.store.append

        async def append_late(name: str, publication: Publication) -> Appended:
            if publication.expected_head is not None:
                await one.publish({"k": "a"})
            return await append(name, publication)

        monkeypatch.setattr(writer, "DECIDED_S_MAX", 0.5)
        with mock.patch.object(other.gateway.store, "append", append_late):
            delta = asyncio.create_task(
                other.http.post(
                    "/v1/topics/px/messages",
                    json={"k": "a", "v": 1},
                    headers={"Content-Type": "application/merge-patch+json"},
                )
            )
            await eventually(lambda: one.gateway.driver.engine.topic("px").head > 1, "it is late")
            await other.publish({"k": "c"})
            assert not delta.done()
            answer = await delta
        assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
        assert {row["k"] for row in await other.sow()} == {"a", "c"}
        [record] = [row for row in await other.sow() if row["k"] == "a"]
        assert record == {"k": "a"}


@rule("cluster-14")
async def test_a_record_just_published_elsewhere_is_deleted(redis_bus: BusServer) -> None:
    """A gateway decides that there is nothing to delete only at the head of the shared log."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        for number in range(30):
            await one.publish({"k": f"key {number}"})
            params = (
                {"key": f'["key {number}"]'} if number % 2 else {"filter": f"/k = 'key {number}'"}
            )
            answer = await other.http.delete("/v1/topics/px/sow", params=params)
            assert (answer.status_code, answer.json()) == (200, {"deleted": 1})
        assert await other.sow() == []


@rule("cluster-14")
async def test_a_published_removal_finds_what_is_there_by_all_gateways(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that is behind knows neither a record nor a removal of another one yet."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        assert other.gateway.bus is not None
        reader = other.gateway.bus._log_reader
        assert reader is not None
        publish = reader._publish

        async def late(name: str, entries: Sequence[dict[bytes, bytes]]) -> None:
            await asyncio.sleep(0.05)
            await publish(name, entries)

        monkeypatch.setattr(reader, "_publish", late)

        async def unmatched(gateway: Running) -> int | None:
            answer = await gateway.http.post(
                "/v1/topics/px/messages",
                params={"format": "envelope"},
                json={"key": ["a"], "reason": "deleted"},
            )
            assert answer.status_code == 200, answer.text
            found: int | None = answer.json().get("unmatched_removals")
            return found

        await one.publish({"k": "a"})
        assert [await unmatched(other), await unmatched(other)] == [None, 1]
        await one.publish({"k": "a"})
        topic = other.gateway.driver.engine.topic("px")
        await eventually(lambda: topic.head == 4, "the record is there")
        assert [await unmatched(one), await unmatched(other)] == [None, 1]


COMMITS = "/v1/topics/px/commits"


async def stage(gateway: Running, message: object) -> None:
    """Lay one message aside in stage s of topic px."""
    headers = {"Tidegate-Stage": "s"}
    staged = await gateway.http.post("/v1/topics/px/messages", json=message, headers=headers)
    assert staged.status_code == 201


async def test_a_commit_that_is_sent_to_two_gateways_at_once_is_known_to_both(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        await stage(one, {"k": 1})
        commit = {"producer": "w", "run": 1, "sequence": 1, "stages": ["s"]}
        writer = one.gateway.ingest._writer
        read = writer.staged

        async def read_late(*asked: Any) -> Any:
            """The other gateway commits after this one has asked whether it is known."""
            monkeypatch.undo()
            first = await other.http.post(COMMITS, json=commit)
            assert first.json()["duplicate"] is False
            return await read(*asked)

        monkeypatch.setattr(writer, "staged", read_late)
        answer = await one.http.post(COMMITS, json=commit)
        assert (answer.status_code, answer.json()["duplicate"]) == (200, True)


@rule("publish-3", "publish-4")
async def test_a_stage_that_is_replaced_while_it_is_committed_is_published_as_it_is_then(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        await stage(one, {"k": 1})
        ingest_writer = one.gateway.ingest._writer
        read = ingest_writer.staged

        async def read_early(*asked: Any) -> Any:
            """Another gateway replaces the stage after this one has read it."""
            monkeypatch.undo()
            found = await read(*asked)
            await stage(other, {"k": 2})
            return found

        monkeypatch.setattr(ingest_writer, "staged", read_early)
        commit = {"producer": "w", "run": 1, "sequence": 1, "stages": ["s"]}
        committed = await one.http.post(COMMITS, json=commit)
        assert (committed.status_code, committed.json()["messages"]) == (200, 1)
        assert await one.sow() == [{"k": 2}]


@rule("publish-5")
async def test_a_stage_that_two_commits_name_at_once_is_published_by_one(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        await stage(one, {"k": 1})
        commits = [{"producer": "w", "run": 1, "sequence": n, "stages": ["s"]} for n in (1, 2)]
        ingest_writer = one.gateway.ingest._writer
        read = ingest_writer.staged

        async def read_early(*asked: Any) -> Any:
            """The other gateway commits after this one has read the stage."""
            found = await read(*asked)
            first = await other.http.post(COMMITS, json=commits[0])
            assert first.status_code == 200, first.text
            return found

        monkeypatch.setattr(ingest_writer, "staged", read_early)
        second = await one.http.post(COMMITS, json=commits[1])
        assert (second.status_code, second.json()["code"]) == (412, "precondition-failed")
        await one.publish({"k": 2})
        assert one.gateway.driver.engine.topic("px").head == 2


@rule("cluster-15")
async def test_a_reader_is_not_taken_back_by_a_gateway_that_is_behind(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with held_reader(other) as goes_on:
            async with one.subscribe("conflation=none") as stream:
                await stream.until("group_end")
                await one.publish({"k": "a", "v": 1})
                assert await stream.values(1) == [{"k": "a", "v": 1}]
                seen = stream.last_id
            refused = await other.http.get(
                "/v1/topics/px/subscribe", headers={"Last-Event-ID": seen}
            )
            # As an event, after which a browser's reader comes again by itself.
            assert refused.text.startswith("event: refused")
            assert '"code":"bus-unavailable"' in refused.text
            goes_on.set()
            await one.publish({"k": "a", "v": 2})
            async with other.subscribe("conflation=none", last_id=seen) as stream:
                assert (await document(stream, "resumed"))["mode"] == "replay"
                assert await stream.values(1) == [{"k": "a", "v": 2}]


@rule("cluster-15")
async def test_a_reader_is_not_taken_back_where_its_topic_is_about_to_be_removed(
    redis_bus: BusServer,
) -> None:
    """Another gateway has deleted it, and this one waits for a writer of it."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with held_reader(other):
            await one.publish({"k": "a", "v": 1})
            epoch, headers = other.gateway.catalog.get("px").record.epoch, dict[str, str]()
            headers["Last-Event-ID"] = f"{epoch}-1"
            with other.gateway.arrivals.deleting("px", epoch):
                refused = await other.http.get("/v1/topics/px/subscribe", headers=headers)
            assert refused.text.startswith("event: refused")
            assert '"code":"bus-unavailable"' in refused.text


@rule("cluster-15")
async def test_a_reader_of_what_is_lost_is_not_taken_back_beyond_that(
    redis_bus: BusServer,
) -> None:
    """It begins anew, and has seen all that is left: not at a gateway that is still behind that."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with held_reader(other) as goes_on:
            await one.publish({"k": "a", "v": 1})
            topic = other.gateway.driver.engine.topic("px")
            assert topic.continue_in(topic.epoch, {"e0e0e0e0e0e0": 1, topic.epoch: topic.head})
            asked = {"Last-Event-ID": "e0e0e0e0e0e0-2"}
            refused = await other.http.get("/v1/topics/px/subscribe", headers=asked)
            assert refused.text.startswith("event: refused")
            goes_on.set()
            await one.publish({"k": "b", "v": 1})
            async with other.subscribe("conflation=none", last_id=asked["Last-Event-ID"]) as again:
                assert (await document(again, "resumed"))["mode"] == "snapshot"
                await again.until("group_begin")
                assert await again.values(2) == [{"k": "a", "v": 1}, {"k": "b", "v": 1}]


@rule("cluster-15")
async def test_a_reader_is_not_taken_back_while_its_epoch_becomes_known(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that was frozen hears of the reader's epoch while it asks the bus."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with held_reader(other):
            await one.publish({"k": "a", "v": 1})
            topic, arrivals = other.gateway.driver.engine.topic("px"), other.gateway.arrivals
            shared_head = arrivals.shared_head

            async def heard_meanwhile(name: str, past: PastTime | None) -> int:
                shared = await shared_head(name, past)
                assert topic.continue_in(topic.epoch, {"e0e0e0e0e0e0": 1, topic.epoch: topic.head})
                return shared

            monkeypatch.setattr(arrivals, "shared_head", heard_meanwhile)
            refused = await other.http.get(
                "/v1/topics/px/subscribe", headers={"Last-Event-ID": "e0e0e0e0e0e0-2"}
            )
            assert refused.text.startswith("event: refused")


@rule("cluster-15")
async def test_a_reader_of_an_unknown_history_begins_with_all_that_the_bus_has(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with held_reader(other):
            await one.publish({"k": "a", "v": 1})
            refused = await other.http.get(
                "/v1/topics/px/subscribe", headers={"Last-Event-ID": "e0e0e0e0e0e0-2"}
            )
            assert refused.text.startswith("event: refused")
        async with other.subscribe("conflation=none", last_id="e0e0e0e0e0e0-2") as again:
            assert (await document(again, "resumed"))["mode"] == "snapshot"
            await again.until("group_begin")
            assert await again.values(1) == [{"k": "a", "v": 1}]


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_topic_deleted_elsewhere_was_published_to_and_blocks_no_definition(
    redis_bus: BusServer, recreated: bool
) -> None:
    """As at one gateway, where the deletion waits for the publish."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        append = other.gateway.store.append

        async with held_reader(other) as is_deleted:  # so the message is gone before it is read

            async def append_then_lose(name: str, publication: Publication) -> Appended:
                appended = await append(name, publication)
                assert (await one.http.delete("/v1/topics/px")).status_code == 204
                if recreated:
                    await one.topic(key=["/other"])
                is_deleted.set()
                return appended

            with mock.patch.object(other.gateway.store, "append", append_then_lose):
                epoch = other.gateway.catalog.get("px").record.epoch
                async with asyncio.timeout(PATIENCE_S / 2):
                    assert await other.publish({"k": 1}) == {
                        "topic": "px", "messages": 1, "first": f"{epoch}-1", "last": f"{epoch}-1",
                        "duplicate": False,
                    }  # fmt: skip
                    await other.topic("second")


async def test_a_topic_deleted_at_two_gateways_holds_up_neither_its_publisher_nor_definitions(
    redis_bus: BusServer,
) -> None:
    """One deletion waits for the publisher, who waits for what the other one has deleted."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        append, changing = other.gateway.store.append, other.gateway.catalog.changing

        async with held_reader(other), asyncio.TaskGroup() as tasks:

            async def append_then_delete(name: str, publication: Publication) -> Appended:
                appended = await append(name, publication)
                deleting = tasks.create_task(other.http.delete("/v1/topics/px"))
                deletions.append(deleting)
                await eventually(changing.locked, "the deletion here waits for the publisher")
                assert (await one.http.delete("/v1/topics/px")).status_code == 204
                return appended

            deletions: list[asyncio.Task[httpx2.Response]] = []
            with mock.patch.object(other.gateway.store, "append", append_then_delete):
                async with asyncio.timeout(PATIENCE_S / 2):
                    assert (await other.publish({"k": 1}))["messages"] == 1
                    assert (await deletions[0]).json()["code"] == "topic-unknown"
                    await other.topic("second")


@rule("cluster-7")
async def test_a_request_that_stored_nothing_in_a_topic_deleted_elsewhere_is_for_the_next_one(
    redis_bus: BusServer,
) -> None:
    """A delta waits for what other gateways have published before it is decided."""
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with held_reader(other) as goes_on:
            await one.publish({"k": 1, "other": 2})
            reached, deletions = other.gateway.arrivals.wait_reached, iter((True,))

            async def deleted_first(topic: str, epoch: str, offset: int) -> None:
                for _ in deletions:
                    await one.http.delete("/v1/topics/px")
                    await one.topic(key=["/other"])
                    goes_on.set()
                await reached(topic, epoch, offset)

            with mock.patch.object(other.gateway.arrivals, "wait_reached", deleted_first):
                answer = await other.http.post(
                    "/v1/topics/px/messages",
                    json={"k": 1, "other": 2, "v": 3},
                    headers={"Content-Type": "application/merge-patch+json"},
                )
            assert answer.status_code == 200, answer.text
            assert await one.sow() == [{"k": 1, "other": 2, "v": 3}]


@contextlib.asynccontextmanager
async def held_reader(gateway: Running) -> AsyncIterator[asyncio.Event]:
    """Let a gateway read nothing of the shared log until the event is set."""
    assert gateway.gateway.bus is not None
    reader = gateway.gateway.bus._log_reader
    assert reader is not None
    read, is_held, goes_on = reader._read, asyncio.Event(), asyncio.Event()

    async def read_late(wait_s: float) -> Any:
        is_held.set()
        await goes_on.wait()
        return await read(wait_s)

    with mock.patch.object(reader, "_read", read_late):
        reader._wake.set()  # it ends the read that is under way
        await is_held.wait()
        yield goes_on
        goes_on.set()


@pytest.mark.parametrize("history", [{"messages": 1}, {"bytes": "1B"}, {"age": "1ms"}])
async def test_a_gateway_that_is_behind_reads_each_message_however_short_the_history(
    redis_bus: BusServer, history: dict[str, object]
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic(history=history)
        await has_topic(other)
        async with other.subscribe("conflation=none") as stream:
            await stream.until("group_end")
            async with held_reader(other):
                for number in range(20):
                    await one.publish({"k": "a", "v": number})
            assert [row["v"] for row in await stream.values(20)] == list(range(20))


async def test_a_topic_that_is_trimmed_before_it_is_read_holds_up_no_other(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, other):
        for name in ("fast", "px"):
            await one.topic(name)
            await has_topic(other, name)
        scan, tried = TopicLog._scan_records, list[str]()

        async def scan_late(log: TopicLog, head: int) -> tuple[dict[str, Frame], int]:
            records, followed = await scan(log, head)
            tried.append(log.record.name)
            return records, -1 if log.record.name == "fast" else followed

        monkeypatch.setattr(TopicLog, "_scan_records", scan_late)
        assert other.gateway.bus is not None
        reader = other.gateway.bus._log_reader
        assert reader is not None
        reader.suspect("fast", Doubt.GAP)
        await eventually(lambda: "fast" in tried, "it is read again")
        for number in range(3):
            await one.publish({"k": "a", "v": number})
            await other.publish({"k": "b", "v": number})
        assert not other.gateway.outage.is_on


async def test_what_expires_is_removed_by_one_of_them(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic(expiration="200ms")
        await has_topic(other)
        async with one.subscribe("conflation=none,oof") as stream:
            await stream.until("group_end")
            await other.publish({"k": "a"}, {"k": "b"})
            assert await stream.values(2) == [{"k": "a"}, {"k": "b"}]
            for _ in range(2):
                assert (await document(stream, "oof"))["reason"] == "expired"
        topics = [it.gateway.driver.engine.topic("px") for it in (one, other)]
        await eventually(lambda: all(it.head == 4 for it in topics), "both know")
        assert await other.sow() == []


@rule("cluster-17")
@pytest.mark.parametrize("off_s", [-9, 9])
async def test_what_is_published_where_the_clock_is_wrong_expires_in_time(
    redis_bus: BusServer, off_s: int
) -> None:
    given = {"redis": redis_bus.url, "redis_prefix": next(PREFIXES)}
    async with contextlib.AsyncExitStack() as gone:
        right = await gone.enter_async_context(running_gateway(**given))
        async with running_gateway(**given, off_ms=off_s * 1_000) as wrong:
            await right.topic(expiration="3s")
            await has_topic(wrong)
            published_ms = wall_ms()
            await wrong.publish({"k": "a"})
            await right.publish({"k": "b"})
            topic = wrong.gateway.driver.engine.topic("px")
            assert topic.sow is not None
            stamps_ms = [it.timestamp_ms for it in topic.sow.board.live()]
            assert all(abs(stamp_ms - published_ms) < 1_500 for stamp_ms in stamps_ms)
            await gone.aclose()  # the next leader counts from the stamps
            assert len(topic.sow.board) == 2 or wall_ms() - published_ms > 2_900
            await eventually(lambda: topic.sow is not None and not len(topic.sow.board), "gone")
            assert 2_900 < wall_ms() - published_ms < 9_000


async def test_a_filled_topic_is_filled_by_one_and_when_that_goes_by_another(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After its first look nobody looks for the lease by itself: it could be back where it was.
    monkeypatch.setattr("tidegate.app.cluster.membership.BEATS_PER_TERM", 0.001)
    given = {"redis": redis_bus.url, "redis_prefix": next(PREFIXES)}
    async with running_gateway(**given) as stays, contextlib.AsyncExitStack() as gone:
        goes = await gone.enter_async_context(running_gateway(**given))
        await stays.topic()
        await stays.topic("slow", key=[], source={"topic": "px", "interval": "100ms"})
        await has_topic(goes, "slow")
        holders = [it for it in (stays, goes) if it.gateway.leadership.is_held]
        assert holders == [stays], "the first to come has the duties"
        async with goes.subscribe("conflation=none", topic="slow") as stream:
            await stream.until("group_end")
            for number in range(1, 5):
                await goes.publish({"k": "a", "v": number})
                assert await stream.values(1) == [{"k": "a", "v": number}], "each once"
        lease = goes.gateway.bus._lease if goes.gateway.bus else None
        assert lease is not None
        await stays.gateway.bus._lease.release()  # type: ignore[union-attr]  # it has one
        await lease.step()
        await eventually(lambda: goes.gateway.leadership.is_held, "it has taken over")
        assert not stays.gateway.leadership.is_held
        both = [it.gateway.driver.engine.topic("slow") for it in (stays, goes)]
        await eventually(lambda: both[0].head == both[1].head, "it has read what the other has")
        async with stays.subscribe("conflation=none", topic="slow") as stream:
            await stream.until("group_end")
            await stays.publish({"k": "a", "v": 5})
            assert await stream.values(1) == [{"k": "a", "v": 5}]
        assert (lease.number or 0) > 1


@rule("topic-9")
@pytest.mark.parametrize("history", [None, {"messages": 0}, {"messages": 1}])
async def test_rows_of_a_source_whose_answer_was_lost_are_filled_in_once(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch, history: dict[str, int] | None
) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.RETRY_S", 0.01)
    source = {"topic": "px", "interval": "100ms"}
    async with gateways(redis_bus) as (leader, _):
        await leader.topic()
        await leader.topic("slow", key=[], source=source, history=history)
        store = leader.gateway.store
        append, left = store.append, ["kept", "not kept"]

        async def cut_off(topic: str, publication: Publication) -> Appended:
            if topic != "slow" or not left:
                return await append(topic, publication)
            if left.pop() == "kept":
                await append(topic, publication)
            raise Unavailable

        monkeypatch.setattr(store, "append", cut_off)
        async with leader.subscribe("conflation=none", topic="slow") as stream:
            await stream.until("group_end")
            await leader.publish({"k": "a", "v": 1}, {"k": "b", "v": 1})
            await eventually(lambda: not left, "it was cut off twice")
            first = await stream.values(2)
            await leader.publish({"k": "a", "v": 2})
            assert [*first, *await stream.values(1)] == [
                {"k": "a", "v": 1},
                {"k": "b", "v": 1},
                {"k": "a", "v": 2},
            ]


@rule("topic-9")
async def test_a_topic_is_filled_once_from_where_another_leader_has_filled_it(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (leader, _):
        await leader.topic()
        await leader.topic("slow", key=[], source={"topic": "px", "interval": "100ms"})
        gateway = leader.gateway
        await leader.publish({"k": "a", "v": 1})
        topic = gateway.driver.engine.topic("slow")
        await eventually(lambda: topic.head == 1, "it is filled")
        entry = gateway.catalog.get("slow")
        filled = await gateway.writer.filled(entry)
        items = [Message(b'{"k":"a","v":2}', '["a"]')]
        async with entry.writing:
            await gateway.writer.write(entry, items, fill=Fill(filled, "another leader's"))
            for mark in ("another leader's", "a late one"):
                with pytest.raises(HeadMoved):
                    await gateway.writer.write(entry, items, fill=Fill(filled, mark))
        assert topic.head == 2
        await leader.publish({"k": "a", "v": 3})
        await eventually(lambda: topic.head == 3, "it is filled on")


def values_of(topic: Topic) -> list[Any]:
    """What a topic was told."""
    return [json.loads(frame.payload) for frame in topic.journal.after(0)]


@rule("topic-9")
async def test_what_comes_to_a_source_without_a_key_while_nobody_leads_is_filled_in(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After its first look nobody looks for the lease by itself.
    monkeypatch.setattr("tidegate.app.cluster.membership.BEATS_PER_TERM", 0.001)
    source = {"topic": "log", "interval": "100ms"}
    async with gateways(redis_bus) as (goes, comes):
        await goes.topic("log", key=[])
        await goes.publish({"k": "before"}, topic="log")
        await comes.topic("slow", key=["/k"], source=source)  # made by one that does not lead
        await comes.publish({"k": "a", "v": 1}, topic="log")
        slow = comes.gateway.driver.engine.topic("slow")
        await eventually(lambda: slow.head == 1, "it is filled")
        await goes.gateway.bus._lease.release()  # type: ignore[union-attr]  # it has one
        await comes.publish({"k": "a", "v": 2}, {"k": "b", "v": 1}, topic="log")
        await comes.gateway.bus._lease.step()  # type: ignore[union-attr]  # it has one
        await comes.publish({"k": "b", "v": 2}, topic="log")
        await eventually(lambda: values_of(slow)[-1] == {"k": "b", "v": 2}, "all have come")
        values = values_of(slow)
        assert values[0] == {"k": "a", "v": 1}
        assert values[1:] in (
            [{"k": "a", "v": 2}, {"k": "b", "v": 2}],
            [{"k": "a", "v": 2}, {"k": "b", "v": 1}, {"k": "b", "v": 2}],
        )


@rule("topic-9")
@pytest.mark.parametrize("back", [["slow"], ["px", "slow"]])
async def test_a_derived_topic_that_comes_back_is_compared_with_all_of_its_log(
    redis_bus: BusServer, back: list[str]
) -> None:
    """As after a failover that has lost its deletion: the leader reads it from the start."""
    async with gateways(redis_bus) as (leader, _):
        await leader.topic()
        await leader.topic("slow", key=[], source={"topic": "px", "interval": "100ms"})
        await leader.publish(*({"k": number} for number in range(3)))
        engine, bus = leader.gateway.driver.engine, leader.gateway.bus
        await eventually(lambda: engine.topic("slow").head == 3, "it is filled")
        assert bus is not None
        definitions = bus._definition_sync
        assert definitions is not None
        records = [leader.gateway.catalog.get(name).record for name in back]
        async with held_reader(leader) as goes_on:
            for record in reversed(records):
                await definitions._apply(record.name, None)
            for record in records:
                await definitions._apply(record.name, record)
            assert engine.topic("slow").head == 0
            goes_on.set()
            await leader.publish({"k": 3})
        await eventually(lambda: engine.topic("slow").head > 3, "it is filled on")
        lines = (await leader.http.get("/v1/topics/slow/messages")).text.splitlines()
        found = [json.loads(line) for line in lines]
        assert [row.get("value") for row in found] == [{"k": number} for number in range(4)]


@contextlib.asynccontextmanager
async def behind_leader(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Running, Running, asyncio.Event]]:
    """Yield a leader that goes and another one that has not read the end of the source's log.

    The other one has the lease by now, and the bus first refuses to say what there is to read. It
    reads on once the event is set.
    """
    # After its first look nobody looks for the lease by itself.
    monkeypatch.setattr("tidegate.app.cluster.membership.BEATS_PER_TERM", 0.001)
    async with gateways(server) as (goes, comes):
        await goes.topic()
        await goes.topic("slow", key=[], source={"topic": "px", "interval": "100ms"})
        await has_topic(comes, "slow")
        await goes.publish({"k": "a", "v": 1})
        slow = comes.gateway.driver.engine.topic("slow")
        await eventually(lambda: slow.head == 1, "it is filled")
        bus, goes_on = comes.gateway.bus, asyncio.Event()
        assert bus is not None
        assert bus._log_reader is not None
        assert bus._lease is not None
        publish = bus._log_reader._publish

        async def held(name: str, entries: Sequence[dict[bytes, bytes]]) -> None:
            if name == "px":
                await goes_on.wait()
            await publish(name, entries)

        waiters, refusals = comes.gateway.arrivals, [Unavailable(), Unavailable()]
        shared_head = waiters.shared_head

        async def refused_first(name: str, past: PastTime | None) -> int:
            if refusals:
                raise refusals.pop()
            return await shared_head(name, past)

        monkeypatch.setattr(bus._log_reader, "_publish", held)
        await goes.publish({"k": "a", "v": 2})
        await eventually(lambda: slow.head == 2, "it is filled again")
        monkeypatch.setattr(waiters, "shared_head", refused_first)
        await goes.gateway.bus._lease.release()  # type: ignore[union-attr]  # it has one
        async with asyncio.timeout(1.0):  # it does not wait for what is to be read
            await bus._lease.step()
            await bus._lease.step()
        assert bus._lease.number is not None
        yield goes, comes, goes_on


@rule("topic-9")
async def test_a_new_leader_fills_from_all_that_the_one_before_had_read(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes, and although the bus refuses to say what there is."""
    monkeypatch.setattr("tidegate.app.topics.append_waiters.PATIENCE_S", 0.3)
    async with behind_leader(redis_bus, monkeypatch) as (goes, comes, goes_on):
        await asyncio.sleep(1.5)
        slow = comes.gateway.driver.engine.topic("slow")
        values = [row["v"] for row in values_of(slow)]
        assert values == [1, 2], "nothing is filled from an older state"
        goes_on.set()
        await goes.publish({"k": "a", "v": 3})
        await eventually(lambda: slow.head >= 3, "it is filled by the other")
        values = [row["v"] for row in values_of(slow)]
        assert values == [1, 2, 3]


@rule("topic-9")
async def test_a_gateway_that_loses_the_lease_before_it_has_read_all_fills_nothing(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_leader(redis_bus, monkeypatch) as (goes, comes, goes_on):
        assert comes.gateway.bus is not None
        await comes.gateway.bus._lease.release()  # type: ignore[union-attr]  # it has one
        await goes.gateway.bus._lease.step()  # type: ignore[union-attr]  # it has one
        assert goes.gateway.leadership.is_held
        goes_on.set()
        await goes.publish({"k": "a", "v": 3})
        slow = comes.gateway.driver.engine.topic("slow")
        await eventually(lambda: slow.head >= 3, "it is filled by the first again")
        await asyncio.sleep(1.5)
        values = [row["v"] for row in values_of(slow)]
        assert values == [1, 2, 3]


@pytest.mark.system
async def test_processes_share_a_bus_and_one_that_is_killed_leaves_all_to_the_other(
    redis_bus: BusServer,
) -> None:
    variables = {"TIDEGATE_REDIS": redis_bus.url, "TIDEGATE_REDIS_PREFIX": next(PREFIXES)}
    async with (
        serving(**variables) as (process, address),
        serving(**variables) as (_, elsewhere),
        client_of(address) as one,
        client_of(elsewhere) as other,
    ):
        await one.topic()
        await one.publish({"k": "a", "v": 1})
        async with one.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            seen = stream.last_id
        shown = await one.publish({"k": "b", "v": 2})
        process.kill()
        async with other.subscribe("conflation=10ms", last_id=seen) as stream:
            assert (await document(stream, "resumed"))["mode"] == "changes"
            assert await stream.values(1) == [{"k": "b", "v": 2}]
            assert stream.last_id == shown["last"]


async def test_polled_streams_of_all_gateways_are_listed(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        for each in (one, other):
            assert (await each.http.get("/v1/topics/px/stream")).is_success
        shown = (await one.http.get("/v1/polled")).json()
        assert shown["missing"] == []
        ids = {each.gateway.sessions.context.gateway_id for each in (one, other)}
        assert {(each["topic"], each["gateway"]) for each in shown["streams"]} == {
            ("px", gateway) for gateway in ids
        }


async def test_a_list_of_polled_streams_names_who_does_not_answer(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (one, _):
        await one.topic()
        assert (await one.http.get("/v1/topics/px/stream")).is_success

        async def nobody(call: Call) -> dict[str, Reply | None]:
            return {"silent": None, "failing": Reply(503, [], b"")}

        monkeypatch.setattr(one.gateway.peers, "broadcast", nobody)
        shown = (await one.http.get("/v1/polled")).json()
        assert [each["topic"] for each in shown["streams"]] == ["px"]
        assert shown["missing"] == ["silent", "failing"]
