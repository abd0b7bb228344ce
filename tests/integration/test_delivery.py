"""From publish to stream over HTTP: the rate, the last value, how streams end."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream, eventually, names, running_gateway


async def test_four_prices_within_an_interval_come_as_one_message_with_the_last() -> None:
    prices = [99.5, 100.25, 100.75, 100.5]
    async with running_gateway() as running:
        await running.topic("prices", key=["/symbol"])
        options = "conflation=2s"
        async with (
            running.subscribe(options, "prices", format="envelope") as ibm,
            running.subscribe(options, "prices", command="subscribe") as values,
        ):
            await ibm.until("group_end")
            answers = [
                await running.publish({"symbol": "IBM", "price": price}, topic="prices")
                for price in prices
            ]
            [row] = await ibm.values(1)
            assert row["value"] == {"symbol": "IBM", "price": 100.5}
            assert row["key"] == ["IBM"]
            assert row["bookmark"] == answers[0]["first"]
            assert ibm.last_id == answers[-1]["last"]
            await running.publish({"symbol": "IBM", "price": 1}, topic="prices")
            assert [value["price"] for value in await values.values(2)] == [100.5, 1]


async def test_two_keys_in_an_interval_come_in_publication_order() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=100ms", command="subscribe") as stream:
            await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 1, "v": 3})
            assert await stream.values(2) == [{"k": 2, "v": 2}, {"k": 1, "v": 3}]


async def test_without_conflation_every_message_comes_in_order() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=none", command="subscribe") as stream:
            for start in range(0, 3_000, 500):
                await running.publish(*[{"k": 1, "v": v} for v in range(start, start + 500)])
            assert [row["v"] for row in await stream.values(3_000)] == list(range(3_000))


async def test_one_large_request_costs_a_healthy_subscriber_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue holds a fiftieth of the request, and the topic does not conflate."""
    for patience in ("PATIENCE_S", "PATIENCE_S_PER_REQUEST"):  # a machine that is slow is no reason
        monkeypatch.setattr(f"tidegate.app.streams.backpressure.{patience}", HANGS_S)
    async with running_gateway(queue_messages_max=200) as running:
        await running.topic(conflation="off")
        async with running.subscribe("conflation=none", command="subscribe") as stream:
            reading = asyncio.create_task(stream.values(10_000))
            lines = b"\n".join(b'{"k":%d}' % number for number in range(10_000))
            await running.publish_lines(lines)
            assert [row["k"] for row in await reading] == list(range(10_000))


async def test_a_deleted_topic_ends_its_streams() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with (
            running.subscribe("conflation=1h", command="subscribe") as first,
            running.subscribe() as second,
        ):
            await second.until("group_end")
            await running.publish({"k": 1})
            assert await second.values(1) == [{"k": 1}]
            await running.http.delete("/v1/topics/px")
            for stream in (first, second):
                unsubscribed, goodbye = await stream.rest()
                assert unsubscribed.name == "unsubscribed"
                assert json.loads(unsubscribed.text) == {
                    "sub": "s1",
                    "topic": "px",
                    "reason": "REMOVED",
                }
                assert goodbye.name == "goodbye"
                assert json.loads(goodbye.text) == {"reason": "UNSUBSCRIBED", "reconnect": False}
            back = await running.http.get(
                "/v1/topics/px/subscribe", headers={"Last-Event-ID": second.last_id}
            )
            assert (back.status_code, back.content) == (204, b"")
        assert running.gateway.driver.engine.stats().sessions == 0


async def test_many_publishers_at_once_leave_no_hole_and_no_disorder() -> None:
    publishers, requests, each = 8, 10, 25
    async with running_gateway() as running:
        await running.topic(key=["/publisher"])
        async with (
            running.subscribe("conflation=none", command="subscribe", format="envelope") as every,
            running.subscribe("conflation=50ms", command="subscribe") as newest,
        ):

            async def publish(publisher: int) -> None:
                for request in range(requests):
                    start = request * each
                    rows = [{"publisher": publisher, "n": start + n} for n in range(each)]
                    await running.publish(*rows)

            await asyncio.gather(*(publish(publisher) for publisher in range(publishers)))
            rows = await every.values(publishers * requests * each)
            assert [row["bookmark"].split("-")[1] for row in rows] == [
                str(offset) for offset in range(1, len(rows) + 1)
            ]
            for publisher in range(publishers):
                seen = [r["value"]["n"] for r in rows if r["value"]["publisher"] == publisher]
                assert seen == list(range(requests * each))
            await converges(newest, dict.fromkeys(range(publishers), requests * each - 1))
        journal = await running.http.get("/v1/topics/px/messages?limit=100000")
        assert [json.loads(line)["value"] for line in journal.text.splitlines()] == [
            row["value"] for row in rows
        ]


async def converges(stream: Stream, expected: dict[int, int]) -> None:
    replica: dict[int, int] = {}
    while replica != expected:
        [row] = await stream.values(1)
        assert row["n"] > replica.get(row["publisher"], -1)
        replica[row["publisher"]] = row["n"]


async def test_a_queue_that_overflows_on_a_topic_that_never_conflates_ends_with_a_goodbye() -> None:
    async with running_gateway(queue_messages_max=10, write_timeout="1m") as running:
        await running.topic(conflation="off")
        async with running.subscribe("conflation=none", command="subscribe") as stream:
            pad = "x" * 100_000
            while not closed(running):  # it does not read
                await running.publish({"k": 1, "pad": pad})
            events = await stream.rest()
        assert json.loads(events[-1].text) == {
            "reason": "MESSAGE_QUEUE_LIMIT_REACHED",
            "reconnect": True,
        }
        assert set(names(events[:-1])) == {"message"}
        await running.publish({"k": 2})
        async with running.subscribe("conflation=none", last_id=stream.last_id) as back:
            resumed = await back.next()
            assert json.loads(resumed.text)["mode"] == "replay"
            missed = json.loads(resumed.text)["gap_messages"]
            rows = await back.values(missed)
            assert rows[-1] == {"k": 2}
        await eventually(lambda: running.gateway.driver.engine.stats().sessions == 0, "all end")


def closed(running: Running) -> dict[str, int]:
    return running.gateway.driver.closed_sessions
