"""`/v1/topics` over HTTP."""

from __future__ import annotations

from tests.support.gateways import running_gateway


async def test_a_topic_is_made_then_replaced() -> None:
    async with running_gateway() as running:
        made = await running.http.put("/v1/topics/px", json={"key": ["/k"]})
        same = await running.http.put("/v1/topics/px", json={"key": ["$.k"]})
        other = await running.http.put("/v1/topics/px", json={"key": ["/k"], "description": "d"})
        assert [answer.status_code for answer in (made, same, other)] == [201, 200, 200]
        assert made.headers["etag"] == same.headers["etag"] != other.headers["etag"]
        shown = await running.http.get("/v1/topics/px")
        assert shown.headers["etag"] == other.headers["etag"]
        assert shown.json()["description"] == "d"
        conditional = {"If-Match": made.headers["etag"]}
        stale = await running.http.delete("/v1/topics/px", headers=conditional)
        assert stale.status_code == 412


async def test_the_figures_of_a_topic() -> None:
    async with running_gateway() as running:
        await running.topic(history={"messages": 2})
        async with running.subscribe("conflation=50ms", command="subscribe") as stream:
            await running.publish({"k": 1}, {"k": 1}, {"k": 2}, {"k": 2})
            await stream.values(2)
            shown = (await running.http.get("/v1/topics/px")).json()
        epoch = shown["epoch"]
        expected = {
            "topic": "px", "key": ["/k"], "type": "json", "conflation": "conflate",
            "history": {"messages": 2}, "source": None, "messages_in": 4, "bytes_in": 32,
            "keys": 2, "bytes": 16, "subscriptions": 1, "lanes": 1, "delivered": 2,
            "conflated": 2, "conflation_ratio": 0.5,
            "journal": {"first": f"{epoch}-3", "last": f"{epoch}-4", "messages": 2},
        }  # fmt: skip
        assert expected.items() <= shown.items()


async def test_topics_are_listed_in_pages() -> None:
    async with running_gateway() as running:
        for name in ("b", "a.2", "a.1", "a.3"):
            await running.topic(name)
        address, seen = "/v1/topics?prefix=a.&limit=2", []
        while address:
            page = (await running.http.get(address)).json()
            seen.append([topic["topic"] for topic in page["topics"]])
            address = page["next"]
        assert seen == [["a.1", "a.2"], ["a.3"]]


async def test_a_deleted_topic_is_gone() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.delete("/v1/topics/px")
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await running.http.get("/v1/topics/px")).status_code == 404


async def test_a_page_begins_behind_a_name_and_nothing_else() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.get("/v1/topics", params={"after": "/v1/topics?after=px"})
        assert (answer.status_code, answer.json()["code"]) == (400, "topic-invalid")


async def test_a_whole_definition_is_shown_with_its_defaults() -> None:
    async with running_gateway() as running:
        await running.topic(expiration="90m", merge={"/qty": "sum"}, schema={"type": "object"})
        shown = (await running.http.get("/v1/topics/px")).json()
        expected = {
            "options": "", "placement": "append", "match": None, "merge": {"/qty": "sum"},
            "retain": True, "values_only": False, "priority": "default", "expiration": "90m",
            "schema": {"type": "object"}, "tidy_on_unsubscribe": False,
        }  # fmt: skip
        assert expected.items() <= shown.items()


async def test_a_part_of_a_definition_is_changed_by_a_merge_patch() -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    async with running_gateway() as running:
        await running.topic(history={"messages": 5, "age": "1h"}, description="d")
        before = (await running.http.get("/v1/topics/px")).headers["etag"]
        body = b'{"history":{"age":null},"description":null,"priority":"high"}'
        answer = await running.http.patch(
            "/v1/topics/px", content=body, headers={**patch, "If-Match": before}
        )
        shown = answer.json()
        assert answer.status_code == 200
        assert answer.headers["etag"] != before
        assert (shown["key"], shown["history"]) == (["/k"], {"messages": 5})
        assert (shown["description"], shown["priority"]) == ("", "high")
        nothing = await running.http.patch("/v1/topics/px", content=b"{}", headers=patch)
        assert nothing.headers["etag"] == answer.headers["etag"]


async def test_a_registered_merger_may_be_named() -> None:
    async with running_gateway(mergers=["operator:add"]) as running:
        await running.topic(merge="operator:add", match="operator:add")
        shown = (await running.http.get("/v1/topics/px")).json()
        assert (shown["merge"], shown["match"]) == ("operator:add", "operator:add")
        answer = await running.http.put("/v1/topics/py", json={"merge": "operator:mul"})
        assert (answer.status_code, answer.json()["pointer"]) == (400, "/merge")
