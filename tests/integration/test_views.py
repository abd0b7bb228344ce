"""Conflated topics and views over HTTP: filled, chained, changed, deleted."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule

SLOW = {"topic": "px", "interval": "100ms"}


async def until_sow(running: Running, topic: str, wanted: object) -> None:
    """Wait until a topic's records are these; every change of them is an event."""
    async with (
        asyncio.timeout(LOOPS_S),
        running.subscribe("oof", topic=topic, format="envelope") as stream,
    ):
        while await running.sow(topic) != wanted:
            await stream.next()


async def journal(running: Running, topic: str) -> list[dict[str, Any]]:
    answer = await running.http.get(f"/v1/topics/{topic}/messages")
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_conflated_topic_holds_the_newest_of_each_key() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.topic("slow", key=(), source=SLOW)
        shown = (await running.http.get("/v1/topics/slow")).json()
        assert (shown["key"], shown["retain"]) == (["/k"], True)
        assert shown["source"] == {
            **SLOW,
            "filter": None,
            "grouping": None,
            "projection": None,
            "engine": "gateway",
        }
        for v in range(20):
            await running.publish({"k": 1, "v": v}, {"k": 2, "v": -v})
        await until_sow(running, "slow", [{"k": 1, "v": 19}, {"k": 2, "v": -19}])
        assert len(await journal(running, "slow")) < 40
        await running.http.delete("/v1/topics/px/sow?key=[1]")
        await until_sow(running, "slow", [{"k": 2, "v": -19}])
        removal = (await journal(running, "slow"))[-1]
        assert (removal["op"], removal["reason"], removal["key"]) == ("oof", "deleted", [1])


async def test_subscribers_of_a_view_see_its_groups() -> None:
    shape = {"grouping": ["/sym"], "projection": ["SUM(/qty) AS /qty", "COUNT(/k) AS /orders"]}
    async with running_gateway() as running:
        await running.topic()
        await running.topic("totals", key=(), source={**SLOW, **shape, "filter": "/qty > 0"})
        async with running.subscribe("conflation=none", topic="totals", command="subscribe") as it:
            await running.publish(
                {"k": 1, "sym": "A", "qty": 5},
                {"k": 2, "sym": "A", "qty": 7},
                {"k": 3, "sym": "A", "qty": 0},
            )
            assert await it.values(1) == [{"sym": "A", "qty": 12, "orders": 2}]
            await running.publish({"k": 2, "sym": "A", "qty": 0})
            assert await it.values(1) == [{"sym": "A", "qty": 5, "orders": 1}]


async def test_they_chain_and_a_source_in_use_stays() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.topic("slow", key=(), source=SLOW)
        await running.topic("slower", key=(), source={**SLOW, "topic": "slow"})
        await running.publish({"k": 1})
        await until_sow(running, "slower", [{"k": 1}])
        for name in ("px", "slow"):
            answer = await running.http.delete(f"/v1/topics/{name}")
            assert (answer.status_code, answer.json()["code"]) == (409, "topic-in-use")
        circle = await running.http.put(
            "/v1/topics/px", json={"key": ["/k"], "source": {**SLOW, "topic": "slower"}}
        )
        assert (circle.status_code, circle.json()["code"]) == (409, "source-cycle")
        for name in ("slower", "slow", "px"):
            assert (await running.http.delete(f"/v1/topics/{name}")).status_code == 204


async def test_it_is_changed_as_it_runs_without_loss() -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    async with running_gateway() as running:
        await running.topic()
        await running.topic("slow", key=(), source={**SLOW, "interval": "1h"})
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 2})
        assert await running.sow("slow") == []
        answer = await running.http.patch(
            "/v1/topics/slow", content=b'{"source":{"interval":"100ms"}}', headers=patch
        )
        assert answer.json()["source"]["interval"] == "100ms"
        await until_sow(running, "slow", [{"k": 1, "v": 1}, {"k": 2, "v": 2}])
        answer = await running.http.patch(
            "/v1/topics/slow", content=b'{"source":{"filter":"/v > 1"}}', headers=patch
        )
        assert answer.status_code == 200, answer.text
        await until_sow(running, "slow", [{"k": 2, "v": 2}])
        assert [row["op"] for row in await journal(running, "slow")] == ["publish"] * 2 + ["oof"]


@rule("interval-9")
async def test_the_row_of_a_group_is_found_however_its_key_is_spelled() -> None:
    shape = {"grouping": ["/sym"], "projection": ["COUNT(/k) AS /orders"]}
    symbols = ("A", [1.0, {"b": 1, "a": "x"}], {"n": 0.1}, 1e30, None)
    async with running_gateway() as running:
        await running.topic()
        await running.topic("totals", key=(), source={**SLOW, **shape})
        async with running.subscribe(
            "conflation=none,send_keys", topic="totals", command="subscribe", format="envelope"
        ) as stream:
            for k, symbol in enumerate(symbols):
                await running.publish({"k": k, "sym": symbol})
                [row] = await stream.values(1)
                for spelled in (row["key"], [symbol], [{"n": 0.10}] if k == 2 else row["key"]):
                    path = quote(json.dumps(spelled, sort_keys=True), safe="")
                    found = await running.http.get(f"/v1/topics/totals/sow/{path}")
                    assert (found.status_code, found.json()) == (200, row["value"]), found.text
        other = await running.http.get("/v1/topics/totals/sow/%5B%5B%5D%5D")
        assert (other.status_code, other.json()["code"]) == (404, "record-unknown")
        for refused in ("/v1/topics/px/sow/%5B%5B%5D%5D", "/v1/topics/px/sow/%5B1e20%5D"):
            answer = await running.http.get(refused)
            assert answer.json()["code"] == "key-invalid"


@rule("topic-3")
async def test_a_topic_with_messages_of_its_own_is_filled_from_no_other() -> None:
    """They would be removed."""
    patch = {"Content-Type": "application/merge-patch+json"}
    async with running_gateway() as running:
        for name in ("px", "own", "empty"):
            await running.topic(name)
        await running.publish({"k": 1}, {"k": 2}, topic="own")
        for name, status in (("own", 409), ("empty", 200)):
            answer = await running.http.patch(
                f"/v1/topics/{name}", content=json.dumps({"source": SLOW}), headers=patch
            )
            assert answer.status_code == status, answer.text
        assert await running.sow("own") == [{"k": 1}, {"k": 2}]
        await running.publish({"k": 3}, topic="own")
        answer = await running.http.get("/v1/topics/own")
        assert answer.json()["source"] is None
