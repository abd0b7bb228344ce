"""The state of the world over HTTP."""

from __future__ import annotations

from urllib.parse import quote

from tests.support.gateways import Running, running_gateway


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
