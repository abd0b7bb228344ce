"""What somebody else wrote under the gateways' keys is passed over, reported, and stops nothing.

Rule cluster-13 is tested here.
"""

from __future__ import annotations

import json
import logging

import pytest

from tests.support.buses import BusServer, define_elsewhere, gateways, has_topic
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.rules import rule
from tidegate.app.cluster.connection import SEQUENCE_MAX, BusConnection
from tidegate.app.cluster.topic_log import topic_keys

pytestmark = [pytest.mark.redis, rule("cluster-13")]

AHEAD = "1700000000000-0"
GARBAGE = b"\xff{"


async def sow(gateway: Running, topic: str = "px") -> list[object]:
    answer = await gateway.http.get(f"/v1/topics/{topic}/sow")
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def bus_of(gateway: Running) -> BusConnection:
    assert gateway.gateway.bus is not None
    return gateway.gateway.bus.connection


async def readiness(gateway: Running) -> dict[str, object]:
    answer = await gateway.http.get("/readyz")
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


@pytest.mark.parametrize(
    ("entry_id", "fields"),
    [
        (AHEAD, (b"foo", b"bar")),
        (AHEAD, (b"name", b"x", b"epoch", b"e1", b"document", b"{}")),
        (f"{SEQUENCE_MAX}-1", (b"name", GARBAGE, b"epoch", b"", b"document", GARBAGE)),
    ],
)
async def test_foreign_changes_are_cleared_away_and_definitions_go_on(
    redis_bus: BusServer,
    entry_id: str,
    fields: tuple[bytes, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tidegate")
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        bus = bus_of(one)
        await bus.execute("XADD", bus.shared_key("changes"), entry_id, *fields)
        for number, gateway in enumerate((one, other, one, other)):
            answer = await gateway.http.put(f"/v1/topics/t{number}", json={"key": ["/k"]})
            assert answer.status_code == 201, answer.text
            await gateway.publish({"k": number})
        await has_topic(one, "t3")
        await has_topic(other, "t2")
        assert await readiness(one) == {"status": "ready"}
        assert one.gateway.catalog.served("x") is None, "it was never defined"
    assert not any(record.exc_info for record in caplog.records)
    assert sum(record.name == "tidegate.bus" for record in caplog.records) <= 2


async def test_a_change_that_was_cleared_away_before_it_was_read_is_made_up_for(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.app.cluster.definition_sync.WAIT_S", 0.05)
    async with gateways(redis_bus) as (one, other):
        bus = bus_of(one)
        async with other.gateway.catalog.changing:  # it hears of nothing meanwhile
            await one.topic()
            await bus.execute("DEL", bus.shared_key("changes"))
        await has_topic(other)


async def test_a_foreign_entry_in_a_topics_stream_has_it_begin_anew_once(
    redis_bus: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidegate")
    async with gateways(redis_bus) as (one, other):
        for topic in ("px", "quiet"):
            await one.topic(topic)
            await has_topic(other, topic)
            await one.publish({"k": "a"}, topic=topic)
        epoch = one.gateway.catalog.get("px").record.epoch
        bus = bus_of(one)
        for entry_id, field in ((AHEAD, b"foo"), ("1700000000001-0", b"e"), ("*", b"i")):
            await bus.execute("XADD", topic_keys(bus, "px")[1], entry_id, field, GARBAGE)
        for gateway in (one, other):
            await begins_anew(gateway, epoch)
        # The last one where it is read: the other gateway shows it some moments later.
        for number, gateway in enumerate((other, one)):
            await eventually_publishes(gateway, {"k": number})
        assert await sow(one) == [{"k": "a"}, {"k": 0}, {"k": 1}]
        assert await sow(one, "quiet") == [{"k": "a"}]
        await one.publish({"k": "b"}, topic="quiet")
    assert not any(record.exc_info for record in caplog.records)


async def begins_anew(gateway: Running, epoch: str) -> None:
    catalog = gateway.gateway.catalog
    await eventually(lambda: catalog.get("px").record.epoch != epoch, "it begins anew")


async def eventually_publishes(gateway: Running, value: object) -> None:
    """A topic that is being looked into is 503 with Retry-After for a moment."""
    while True:
        answer = await gateway.http.post("/v1/topics/px/messages", json=value)
        if answer.status_code == 200:
            return
        assert answer.json()["code"] == "bus-unavailable"


@pytest.mark.nightly  # it waits for ten seconds
async def test_a_start_names_what_it_cannot_read_and_serves_the_rest(
    redis_bus: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidegate")
    async with gateways(redis_bus, 1) as (one,):
        for topic in ("px", "bad", "lost"):
            await one.topic(topic)
            await one.publish({"k": "a"}, topic=topic)
        bus = bus_of(one)
        await one.gateway.bus.aclose()  # type: ignore[union-attr] # nobody mends it meanwhile
        await bus.execute("HSET", bus.shared_key("documents"), "bad", GARBAGE)
        await bus.execute("HDEL", bus.shared_key("documents"), "lost")
        await bus.execute("HSET", bus.shared_key("epochs"), b"no \xff name", GARBAGE)
        await bus.execute("XADD", topic_keys(bus, "px")[1], AHEAD, "foo", "bar")
        await bus.execute("HSET", topic_keys(bus, "px")[2], GARBAGE, GARBAGE)
        async with running_gateway(redis=redis_bus.url, redis_prefix=bus.prefix) as later:
            shown = await readiness(later)
            topics = shown["topics"]
            assert isinstance(topics, list)
            assert sorted((it["topic"], it["state"]) for it in topics) == [
                ("bad", "unusable"),
                ("lost", "unusable"),
            ]
            assert isinstance(shown["bus"], list)
            assert any(bus.shared_key("epochs") in line for line in shown["bus"])
            assert any(topic_keys(bus, "px")[2] in line for line in shown["bus"])
            assert await sow(later) == [{"k": "a"}]
            await eventually_publishes(later, {"k": "b"})
            refused = await later.http.post("/v1/topics/bad/messages", json={"k": 1})
            assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.nightly  # it waits for ten seconds
async def test_a_publish_that_a_foreign_entry_stands_in_the_way_of_leaves_nothing_behind(
    redis_bus: BusServer,
) -> None:
    """Its number is not noted: when it is sent again it is published, once.

    The restart of the topic may also take the answer of a repetition, which is then a duplicate.
    """
    async with gateways(redis_bus, 1) as (one,):
        await one.topic()
        await one.publish({"k": "a"})
        bus = bus_of(one)
        headers = {"Tidegate-Producer": "p", "Tidegate-Sequence": "1"}
        while True:
            await bus.execute("XADD", topic_keys(bus, "px")[1], "*", "foo", "bar")
            answer = await one.http.post("/v1/topics/px/messages", json={"k": 1}, headers=headers)
            if answer.status_code == 503:
                break
            number = int(headers["Tidegate-Sequence"]) + 1
            headers["Tidegate-Sequence"] = str(number)
        while answer.status_code == 503:
            answer = await one.http.post("/v1/topics/px/messages", json={"k": 1}, headers=headers)
        assert answer.status_code == 200
        lines = (await one.http.get("/v1/topics/px/messages")).text.splitlines()
        assert [json.loads(line)["value"] for line in lines] == [{"k": 1}]


@rule("topic-15")
async def test_an_unusable_topic_is_put_back_on_a_bus_that_has_lost_it(
    redis_bus: BusServer,
) -> None:
    text = b'{"key":["/k"],"merge":"no:such"}'
    async with gateways(redis_bus, 1) as (one,):
        bus = bus_of(one)
        documents, epochs = bus.shared_key("documents"), bus.shared_key("epochs")
        await one.topic()
        await define_elsewhere(bus, "px", "e1", text)
        catalog = one.gateway.catalog
        await eventually(lambda: catalog.unusable("px") is not None, "it cannot be used any more")
        names = await bus.execute("KEYS", f"*{bus.prefix}*")
        await bus.execute("DEL", *names)

        def is_put_back() -> bool:
            unusable = catalog.unusable("px")
            return unusable is not None and unusable.epoch != "e1"

        await eventually(is_put_back, "it is put back")
        assert await bus.execute("HGET", documents, "px") == text
        unusable = catalog.unusable("px")
        assert unusable is not None
        assert await bus.execute("HGET", epochs, "px") == unusable.epoch.encode()
        assert (await one.http.delete("/v1/topics/px")).status_code == 204
        assert await bus.execute("HGET", documents, "px") is None
