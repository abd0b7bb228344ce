"""The state of the world over HTTP."""

from __future__ import annotations

import json
from urllib.parse import quote

from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule


async def filled(running: Running) -> str:
    await running.topic(key=("/a", "/b"))
    published = await running.publish(
        {"a": "x/y", "b": 1, "v": 1}, {"a": "é", "b": 2, "v": 2}, {"a": "x/y", "b": 1.0, "v": 3}
    )
    return str(published["last"])


async def test_rows_are_the_newest_of_each_key() -> None:
    async with running_gateway() as running:
        last = await filled(running)
        answer = await running.http.get("/v1/topics/px/sow")
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert answer.headers["tidegate-bookmark"] == last
        assert [row["v"] for row in await running.sow()] == [2, 3]


async def test_an_array_where_asked_for() -> None:
    async with running_gateway() as running:
        await filled(running)
        accept = {"Accept": "application/json"}
        answer = await running.http.get("/v1/topics/px/sow", headers=accept)
        assert answer.headers["content-type"] == "application/json"
        assert [row["v"] for row in answer.json()] == [2, 3]
        await running.topic("empty")
        empty = await running.http.get("/v1/topics/empty/sow", headers=accept)
        assert (empty.text, empty.headers["tidegate-bookmark"][-2:]) == ("[]", "-0")


async def test_envelopes_where_asked_for() -> None:
    async with running_gateway() as running:
        await filled(running)
        accept = {"Accept": "application/json"}
        rows = await running.http.get("/v1/topics/px/sow?format=envelope", headers=accept)
        assert [(row["op"], row["key"]) for row in rows.json()] == [
            ("snapshot", ["é", 2]), ("snapshot", ["x/y", 1])
        ]  # fmt: skip


async def test_many_rows_come_whole() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n} for n in range(1_203)])
        assert await running.sow() == [{"k": n} for n in range(1_203)]
        accept = {"Accept": "application/json"}
        array = (await running.http.get("/v1/topics/px/sow", headers=accept)).json()
        assert len(array) == 1_203


async def test_a_record_is_found_by_any_spelling_of_its_key() -> None:
    async with running_gateway() as running:
        last = await filled(running)
        for key in ('["x/y",1]', '[ "x\\/y" , 1e0 ]', '["x\\u002fy",1.0]'):
            for path in (quote(key, safe=""), quote(key, safe="/[]")):
                answer = await running.http.get(f"/v1/topics/px/sow/{path}")
                assert answer.status_code == 200, (key, answer.text)
                assert answer.json()["v"] == 3
                assert answer.headers["tidegate-bookmark"] == last
        envelope = await running.http.get(
            f"/v1/topics/px/sow/{quote(json_key('é', 2), safe='')}?format=envelope"
        )
        assert envelope.json()["key"] == ["é", 2]


def json_key(text: str, number: int) -> str:
    return f'["{text}",{number}]'


async def test_a_key_of_another_type_is_another_key() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": "1"}, {"k": True})
        assert len(await running.sow()) == 3
        answer = await running.http.get("/v1/topics/px/sow/%5Btrue%5D")
        assert answer.json() == {"k": True}


async def test_what_accept_leaves_out_is_not_sent() -> None:
    async with running_gateway() as running:
        await filled(running)
        kinds = {
            "application/json;q=0, */*": "application/x-ndjson",
            "application/x-ndjson;q=0, application/*": "application/json",
            "*/*": "application/x-ndjson",
        }
        for accept, kind in kinds.items():
            answer = await running.http.get("/v1/topics/px/sow", headers={"Accept": accept})
            assert answer.headers["content-type"] == kind, accept
        for accept in ("text/html", "text/event-stream", "application/*;q=0"):
            answer = await running.http.get("/v1/topics/px/sow", headers={"Accept": accept})
            assert answer.json()["code"] == "not-acceptable", accept


async def test_records_are_asked_for_by_filter_order_and_fields() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n, "v": 10 - n} for n in range(6)])

        async def asked(**params: str) -> object:
            answer = await running.http.get("/v1/topics/px/sow", params=params)
            assert answer.status_code == 200, answer.text
            return [tuple(json.loads(line).values()) for line in answer.text.splitlines()]

        assert await asked(filter="/k > 3") == [(4, 6), (5, 5)]
        assert await asked(order_by="/v", top_n="2", skip_n="1") == [(4, 6), (3, 7)]
        assert await asked(select="[-/,+/v]", filter="/k = 2") == [(8,)]
        query = {"filter": "/k = 1", "format": "envelope", "select": "[-/k]"}
        envelope = (await running.http.get("/v1/topics/px/sow", params=query)).json()
        assert (envelope["key"], envelope["value"]) == ([1], {"v": 9})


@rule("topic-7")
async def test_records_are_deleted_by_filter_or_by_key() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n} for n in range(1_100)])
        target = "/v1/topics/px/sow"
        deleted = await running.http.delete(target, params={"filter": "/k < 1098"})
        assert (deleted.status_code, deleted.json()) == (200, {"deleted": 1_098})
        assert await running.sow() == [{"k": 1_098}, {"k": 1_099}]
        for count in (1, 0):
            answer = await running.http.delete(target, params={"key": "[ 1098.0 ]"})
            assert answer.json() == {"deleted": count}
        assert await running.sow() == [{"k": 1_099}]
        shown = (await running.http.get("/v1/topics/px")).json()
        assert shown["keys"] == 1
        assert (await running.http.get("/v1/topics/px/sow/%5B1098%5D")).status_code == 404


@rule("key-5")
async def test_what_is_deleted_is_named_in_one_way() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": "a"})
        for params in ({}, {"key": '["a"]', "filter": "TRUE"}):
            answer = await running.http.delete("/v1/topics/px/sow", params=params)
            assert (answer.status_code, answer.json()["code"]) == (400, "options-invalid")
        assert await running.sow() == [{"k": "a"}]


async def test_a_key_that_no_record_can_have_is_none() -> None:
    """Nothing to delete would be a wrong answer to a wrong question."""
    async with running_gateway() as running:
        await running.topic()
        await running.topic("two", key=["/a", "/b"])
        await running.publish({"k": 1})
        for topic, key in (("px", "[1,2]"), ("px", "[]"), ("two", "[1]")):
            answer = await running.http.delete(f"/v1/topics/{topic}/sow", params={"key": key})
            assert (answer.status_code, answer.json()["code"]) == (422, "key-invalid")
        assert await running.sow() == [{"k": 1}]


async def test_subscribers_get_what_is_deleted() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("oof", command="subscribe", format="value") as stream:
            await running.publish({"k": 1, "v": 1})
            await stream.values(1)
            await running.http.delete("/v1/topics/px/sow?key=[1]")
            [oof] = await stream.until("oof")
            assert json.loads(oof.text) == {
                "reason": "deleted", "key": [1], "value": {"k": 1, "v": 1}
            }  # fmt: skip


async def test_a_record_that_expires_is_sent_and_gone() -> None:
    async with running_gateway() as running:
        await running.topic(expiration="50ms")
        async with running.subscribe("oof", command="subscribe", format="value") as stream:
            await running.publish({"k": 1})
            [_, oof] = await stream.until("oof")
            assert json.loads(oof.text)["reason"] == "expired"
            assert await running.sow() == []


async def test_the_one_record_of_a_topic_without_a_key() -> None:
    async with running_gateway() as running:
        await running.topic(key=(), retain=True)
        await running.publish({"v": 1}, {"v": 2})
        assert await running.sow() == [{"v": 2}]
        assert (await running.http.get("/v1/topics/px/sow/%5B%5D")).json() == {"v": 2}
        assert (await running.http.delete("/v1/topics/px/sow?key=[]")).json() == {"deleted": 1}
        assert await running.sow() == []


@rule("topic-1")
async def test_a_topic_that_retains_nothing_has_no_state() -> None:
    async with running_gateway() as running:
        await running.topic(retain=False)
        await running.publish({"k": 1})
        answer = await running.http.get("/v1/topics/px/sow")
        assert (answer.status_code, answer.json()["code"]) == (400, "options-invalid")
        missing = await running.http.post("/v1/topics/px/messages", json={"v": 1})
        assert missing.json()["code"] == "key-missing"
