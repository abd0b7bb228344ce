"""`/v1/topics` over HTTP."""

from __future__ import annotations

import asyncio
import json

from tests.support.gateways import running_gateway
from tests.support.rules import rule


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
        epoch, ends = shown["epoch"], shown["journal"]
        assert 1_600_000_000_000 < ends.pop("first_ms") <= ends.pop("last_ms")
        expected = {
            "topic": "px", "key": ["/k"], "type": "json", "conflation": "conflate",
            "history": {"messages": 2}, "source": None, "messages_in": 4, "bytes_in": 32,
            "keys": 2, "bytes": 16, "subscriptions": 1, "lanes": 1, "delivered": 2,
            "conflated": 2, "conflation_ratio": 0.5,
            "journal": {"first": f"{epoch}-3", "last": f"{epoch}-4", "messages": 2},
        }  # fmt: skip
        assert expected.items() <= shown.items()


@rule("option-1")
async def test_a_topic_s_options_are_no_longer_than_a_request_s() -> None:
    async with running_gateway(options_characters_max=20) as running:
        path, fits, too_long = "/v1/topics/px", "conflation=1s" + " " * 7, "conflation=1s" + " " * 8
        assert (await running.http.put(path, json={"options": fits})).status_code == 201
        for answer in (
            await running.http.put("/v1/topics/other", json={"options": too_long}),
            await running.http.put(path, json={"options": too_long}),
            await running.http.patch(path, json={"options": too_long}),
        ):
            found = answer.json()
            assert answer.status_code == 400
            assert (found["code"], found["pointer"]) == ("options-invalid", "/options")
        assert (await running.http.get(path)).json()["options"] == fits
        assert (await running.http.get("/v1/topics/other")).status_code == 404


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


@rule("topic-11")
async def test_every_answer_about_a_topic_has_the_tag_of_its_definition() -> None:
    async with running_gateway() as running:
        made = await running.http.put("/v1/topics/px", json={"key": ["/k"]})
        patched = await running.http.patch("/v1/topics/px", json={"priority": "high"})
        shown = await running.http.get("/v1/topics/px")
        await running.publish({"k": 1})
        headed = await running.http.head(
            "/v1/topics/px", headers={"If-None-Match": patched.headers["etag"]}
        )
        assert made.headers["etag"] != patched.headers["etag"]
        tags = {answer.headers["etag"] for answer in (patched, shown, headed)}
        assert tags == {patched.headers["etag"]}, "messages are no part of a definition"
        assert (headed.status_code, headed.content) == (200, b"")


CONDITIONAL_CHANGES: list[tuple[str, dict[str, str], bool, int]] = [
    ("PUT", {"If-Match": "*"}, False, 412),
    ("PUT", {"If-Match": "*"}, True, 200),
    ("PUT", {"If-Match": '"other"'}, True, 412),
    ("PUT", {"If-Match": '"other", %s'}, True, 200),
    ("PUT", {"If-Match": "W/%s"}, True, 200),  # made weak by a proxy that compresses answers
    ("PUT", {"If-None-Match": "*"}, False, 201),
    ("PUT", {"If-None-Match": "*"}, True, 412),
    ("PUT", {"If-None-Match": "%s"}, True, 412),
    ("PUT", {"If-None-Match": "W/%s"}, True, 412),
    ("PUT", {"If-None-Match": '"other"'}, True, 200),
    ("PATCH", {"If-Match": '"other"'}, True, 412),
    ("PATCH", {"If-Match": "%s"}, True, 200),
    ("PATCH", {"If-Match": "*"}, False, 404),
    ("PATCH", {"If-None-Match": "*"}, True, 412),
    ("DELETE", {"If-Match": '"other"'}, True, 412),
    ("DELETE", {"If-Match": "%s"}, True, 204),
    ("DELETE", {"If-Match": "*"}, False, 404),
    ("DELETE", {"If-None-Match": "*"}, True, 412),
]


@rule("topic-11")
async def test_a_change_has_its_preconditions() -> None:
    async with running_gateway() as running:
        for number, (verb, headers, there, status) in enumerate(CONDITIONAL_CHANGES):
            topic, before = f"/v1/topics/t{number}", ""
            if there:
                made = await running.http.put(topic, json={"key": ["/k"]})
                before = made.headers["etag"]
            sent = {name: text.replace("%s", before) for name, text in headers.items()}
            body = None if verb == "DELETE" else {"key": ["/k"], "description": "new"}
            answer = await running.http.request(verb, topic, json=body, headers=sent)
            assert answer.status_code == status, (verb, headers, there)
            if status == 412:
                assert answer.json()["code"] == "precondition-failed"
                after = await running.http.get(topic)
                assert after.headers.get("etag", "") == before


async def test_of_changes_that_name_the_same_tag_exactly_one_wins() -> None:
    async with running_gateway() as running:
        made = await running.http.put("/v1/topics/px", json={"key": ["/k"]})
        asked = [
            running.http.patch(
                "/v1/topics/px",
                json={"description": str(number)},
                headers={"If-Match": made.headers["etag"]},
            )
            for number in range(20)
        ]
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status_code for answer in answers) == [200] + [412] * 19
        won = next(answer for answer in answers if answer.status_code == 200)
        shown = await running.http.get("/v1/topics/px")
        assert shown.headers["etag"] == won.headers["etag"]
        assert shown.json()["description"] == won.json()["description"]


async def test_a_topic_made_again_is_another_one() -> None:
    async with running_gateway() as running:
        first = await running.http.put("/v1/topics/px", json={"key": ["/k"]})
        await running.publish({"k": 1})
        await running.http.delete("/v1/topics/px")
        second = await running.http.put("/v1/topics/px", json={"key": ["/k"]})
        assert second.status_code == 201
        assert second.json()["epoch"] != first.json()["epoch"]
        assert second.headers["etag"] != first.headers["etag"]
        assert await running.sow() == []


async def test_what_stands_against_a_change() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.topic("slow", key=(), source={"topic": "px", "interval": "1s"})

        async def refused(verb: str, name: str, body: object) -> tuple[int, str, str | None]:
            answer = await running.http.request(verb, f"/v1/topics/{name}", json=body)
            return answer.status_code, answer.json()["code"], answer.json().get("pointer")

        cycle = {"source": {"topic": "slow", "interval": "1s"}}
        assert await refused("DELETE", "px", None) == (409, "topic-in-use", None)
        assert await refused("PATCH", "px", {"key": []}) == (409, "topic-in-use", "/key")
        assert await refused("PATCH", "px", cycle) == (409, "source-cycle", "/source/topic")
        await running.publish({"k": 1})
        for change, pointer in (({"key": ["/o"]}, "/key"), ({"type": "text", "key": []}, "/key")):
            expected = (409, "topic-conflict", pointer)
            assert await refused("PUT", "px", change) == expected
            assert await refused("PATCH", "px", change) == expected
        assert (await running.http.delete("/v1/topics/slow")).status_code == 204
        assert (await running.http.delete("/v1/topics/px")).status_code == 204


async def test_live_subscriptions_of_a_deleted_topic_are_ended() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=none") as stream:
            await running.http.delete("/v1/topics/px")
            reported = await stream.until("unsubscribed")
            assert json.loads(reported[-1].text)["reason"] == "REMOVED"


async def test_a_list_that_cannot_be_had() -> None:
    async with running_gateway() as running:
        for query in ("limit=0", "limit=1001", "limit=x", "next=1", "limit=1&limit=2"):
            answer = await running.http.get(f"/v1/topics?{query}")
            found = (answer.status_code, answer.json()["code"])
            assert found == (400, "options-invalid"), query


@rule("pipeline-14")
async def test_a_list_is_sent_again_when_definitions_have_changed() -> None:
    async with running_gateway() as running:
        await running.topic()
        first = await running.http.get("/v1/topics")
        await running.publish({"k": 1})
        known = {"If-None-Match": first.headers["etag"]}
        same = await running.http.get("/v1/topics", headers=known)
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == first.headers["etag"]
        # What proxies and lists make of a tag is taken for it.
        tag = first.headers["etag"].removeprefix("W/")
        for form in (tag, f'"x", W/{tag}', f'W/{tag[:-1]}-gzip"', "*"):
            again = await running.http.get("/v1/topics", headers={"If-None-Match": form})
            assert again.status_code == 304, form
        await running.topic("new")
        other = await running.http.get("/v1/topics", headers=known)
        assert (other.status_code, len(other.json()["topics"])) == (
            200,
            len(first.json()["topics"]) + 1,
        )
        assert (await running.http.get("/v1/topics?limit=1", headers=known)).status_code == 200


async def test_a_list_goes_on_where_it_stopped_whatever_became_of_the_names() -> None:
    async with running_gateway() as running:
        for name in ("a", "b", "c", "d"):
            await running.topic(name)
        page = (await running.http.get("/v1/topics?limit=2")).json()
        await running.http.delete("/v1/topics/b")
        await running.topic("bb")
        rest = (await running.http.get(page["next"])).json()
        assert [topic["topic"] for topic in rest["topics"]] == ["bb", "c"]
        assert (await running.http.get("/v1/topics?after=d")).json() == {"topics": [], "next": None}


@rule("topic-2", "queue-8")
async def test_what_was_granted_stays_and_what_is_the_topics_own_holds_at_once() -> None:
    """Rule queue-8 has the policies."""
    change = {"options": "conflation=1s", "values_only": True, "history": {"messages": 1}}
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=none", command="delta_subscribe") as stream:
            await running.http.patch("/v1/topics/px", json=change)
            await running.publish({"k": 1, "v": 1, "w": "a long text"})
            await running.publish({"k": 1, "v": 2, "w": "a long text"})
            assert await stream.values(1) == [{"k": 1, "v": 1, "w": "a long text"}]
            delta = await stream.next()
            assert (delta.name, json.loads(delta.text)) == ("delta", {"k": 1, "v": 2})
            async with running.subscribe():
                (granted,) = running.hellos[-1]["subscriptions"]
                assert "conflation=1s" in granted["options"]
            journal = (await running.http.get("/v1/topics/px")).json()["journal"]
            assert journal["messages"] == 1
            session = running.hellos[0]["session"]
            (seen,) = (await running.http.get(f"/v1/sessions/{session}")).json()["subscriptions"]
            assert "conflation=none" in seen["options"]
