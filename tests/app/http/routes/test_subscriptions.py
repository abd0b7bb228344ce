"""Subscriptions of a session, changed while it runs: in all or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gateways import Running, names, running_gateway
from tests.support.rules import rule
from tests.support.sessions import Follower, attached, opened, subscribed


async def patched(running: Running, session: str, sub: str = "s1", **change: object) -> Any:
    path = f"/v1/sessions/{session}/subscriptions/{sub}"
    answer = await running.http.patch(path, json=change)
    return answer.json() if answer.status_code == 200 else answer


async def shown(running: Running, session: str, sub: str = "s1") -> dict[str, Any]:
    answer = await running.http.get(f"/v1/sessions/{session}/subscriptions/{sub}")
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


async def test_what_is_granted_is_sent_and_shown() -> None:
    async with running_gateway() as running:
        await running.topic("px", options="conflation=1s,max_age=2s")
        session = await opened(running)
        answer = await running.http.post(
            f"/v1/sessions/{session}/subscriptions",
            json={"topic": "px", "options": "conflation=none", "filter": "/k > 0"},
        )
        granted = answer.json()
        assert answer.headers["location"] == f"/v1/sessions/{session}/subscriptions/s1"
        assert granted == {
            "sub": "s1", "topic": "px", "options": "conflation=none,no_defaults", "format": "batch",
            "lane": "conflation=none&filter=/k > 0", "warnings": [
                "the topic's own max_age is left out: max_age needs a conflation interval"
            ],
        }  # fmt: skip
        view = await shown(running, session)
        assert {name: view[name] for name in ("sub", "topic", "options", "lane")} == {
            name: granted[name] for name in ("sub", "topic", "options", "lane")
        }
        assert (view["command"], view["filter"], view["order_by"], view["paused"]) == (
            "sow_and_subscribe", "/k > 0", None, False
        )  # fmt: skip
        listed = (await running.http.get(f"/v1/sessions/{session}/subscriptions")).json()
        assert listed == {"subscriptions": [view]}


async def test_figures_add_up() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=1h", command="subscribe")
        await subscribed(running, session, topic="px", command="subscribe")
        async with attached(running, session) as stream:
            await running.publish({"k": 1}, {"k": 1}, {"k": 2})
            await Follower().follow(stream, s2=3)
            figures = {
                name: [(await shown(running, session, sub))[name] for sub in ("s1", "s2")]
                for name in ("matched", "delivered", "conflated", "dropped", "waiting")
            }
        assert figures == {
            "matched": [3, 3], "delivered": [0, 3], "conflated": [1, 0], "dropped": [0, 0],
            "waiting": [2, 0],
        }  # fmt: skip


async def test_another_interval_is_sent_and_holds_from_then_on() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=1h", command="subscribe")
        async with attached(running, session) as stream:
            await stream.next()
            await running.publish({"k": 1})
            changed = await patched(running, session, conflation="50ms")
            assert changed["options"] == "conflation=50ms,conflation_key=[/k],pace=batch"
            seen = await stream.next()
            assert (seen.name, json.loads(seen.text)) == ("conflation", {
                "sub": "s1", "topic": "px", "from": "1h", "to": "50ms", "reason": "requested",
                "inputs": {},
            })  # fmt: skip
            follower = Follower()
            await follower.follow(stream, s1=1)
        assert follower.values("s1") == [{"k": 1}]
        assert (await shown(running, session))["interval_ms"] == 50


@rule("change-4")
async def test_options_are_laid_over_the_earlier_ones_or_put_in_their_place() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=1s,oof,max_age=3s")
        changed = await patched(running, session, options="conflation=2s")
        assert changed["options"] == ("conflation=2s,conflation_key=[/k],pace=batch,max_age=3s,oof")
        changed = await patched(running, session, options="conflation=none")
        assert changed["options"] == "conflation=none,oof"
        assert changed["warnings"] == [
            "the earlier max_age is left out: max_age needs a conflation interval"
        ]
        changed = await patched(running, session, options="conflation=4s,replace")
        assert changed["options"] == "conflation=4s,conflation_key=[/k],pace=batch"


@rule("change-4")
async def test_a_change_is_a_merge_patch_as_a_topic_s_is() -> None:
    async with running_gateway() as running:
        await running.topic()
        session = (await running.http.post("/v1/sessions")).json()["session"]
        asked = {"topic": "px", "filter": "/v = 1", "options": "conflation=1s"}
        path = f"/v1/sessions/{session}"
        await running.http.post(f"{path}/subscriptions", json=asked)
        patch = {"Content-Type": "application/merge-patch+json"}
        answer = await running.http.patch(
            f"{path}/subscriptions/s1", content=b'{"filter":null,"options":null}', headers=patch
        )
        assert answer.status_code == 200, answer.text
        found = await shown(running, session)
        assert (found["filter"], found["interval_ms"]) == (None, 0)
        for body, messages in ((b'{"limits":{"messages":5}}', 5), (b'{"limits":null}', 10_000)):
            answer = await running.http.patch(path, content=body, headers=patch)
            assert (answer.status_code, answer.json()["limits"]["messages"]) == (200, messages)


async def test_another_filter_brings_in_what_the_old_one_hid() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 2})
        session = await opened(running)
        await subscribed(running, session, topic="px", filter="/v = 1", options="oof")
        async with attached(running, session) as stream:
            await stream.until("group_end")
            before = stream.last_id
            await patched(running, session, filter="/v = 2")
            seen = Follower()
            await seen.follow(stream, s1=2)
            after = stream.last_id
        rows = [(row["op"], row["key"]) for row in seen.rows["s1"]]
        assert sorted(rows) == [("oof", [1]), ("publish", [2])]
        for last_id, mode in ((before, "snapshot"), (after, "snapshot")):  # oof with a filter
            async with attached(running, session, last_id) as stream:
                resumed = json.loads((await stream.next()).text)
                assert resumed["mode"] == mode


@rule("session-6")
@pytest.mark.parametrize("is_read", [True, False])
async def test_where_another_filter_holds_an_earlier_place_is_none(is_read: bool) -> None:
    """Rows that the new filter shows and the old one hid were never sent."""
    async with running_gateway() as running:
        await running.topic("px")
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 2})
        session = await opened(running)
        options = "conflation=50ms"
        await subscribed(running, session, topic="px", filter="/v = 1", options=options)
        async with attached(running, session) as stream:
            await stream.until("group_end")
            before = stream.last_id
            if is_read:
                await patched(running, session, filter="/v > 0")
                await Follower().follow(stream, s1=1)
                after = stream.last_id
        if not is_read:
            await patched(running, session, filter="/v > 0")
        async with attached(running, session, before) as stream:
            seen = await stream.until("group_end")
            assert names(seen) == ["resumed", "group_begin", "message", "group_end"]
            assert len(json.loads(seen[2].text)["rows"]) == 2
        if is_read:
            async with attached(running, session, after) as stream:
                assert json.loads((await stream.next()).text)["mode"] == "changes"


async def test_a_subscription_is_paused_and_goes_on() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", command="subscribe")
        await subscribed(running, session, topic="px", command="subscribe")
        async with attached(running, session) as stream:
            ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
                ({"paused": True}, {"paused": False}),
                ({"options": "pause"}, {"options": "resume"}),
            ]
            for change, resumed in ways:
                await patched(running, session, **change)
                assert (await shown(running, session))["paused"]
                seen = Follower()
                await running.publish({"k": 1})
                await seen.follow(stream, s2=1)
                assert seen.rows["s1"] == []
                await patched(running, session, **resumed)
                assert not (await shown(running, session))["paused"]
                await seen.follow(stream, s1=1)


REFUSED: list[dict[str, Any]] = [
    {"conflation": "zzq"},
    {"options": "conflation=1s,zzq"},
    {"options": "top_n=5", "filter": "/v > 1"},
    {"filter": "/v >"},
    {"conflation": "1s", "filter": "/v >"},
    {"order_by": "zzq"},
    {"paused": "yes"},
    {"paused": True, "options": "resume"},
    {"options": "bookmark=epoch"},
    {"zzq": 1},
    {},
]


@pytest.mark.parametrize("change", REFUSED)
async def test_a_change_that_is_refused_changes_nothing(change: dict[str, Any]) -> None:
    async with running_gateway() as running:
        await running.topic("px.a")
        session = await opened(running)
        await subscribed(running, session, topic="px.*", options="conflation=2s")
        before = await shown(running, session)
        answer = await patched(running, session, **change)
        assert answer.status_code == 400, answer.text
        assert await shown(running, session) == before


async def test_a_pattern_is_one_subscription_among_several() -> None:
    async with running_gateway() as running:
        for topic in ("px.a", "px.b", "fx"):
            await running.topic(topic)
        session = await opened(running)
        granted = await subscribed(running, session, topic="px.*", options="conflation=1s")
        await subscribed(running, session, topic="fx", command="subscribe")
        assert (granted["topic"], granted["options"]) == ("px.*", None)
        assert [each["topic"] for each in granted["topics"]] == ["px.a", "px.b"]
        changed = await patched(running, session, conflation="50ms")
        assert {each["options"] for each in changed["topics"]} == {
            "conflation=50ms,conflation_key=[/k],pace=batch"
        }
        async with attached(running, session) as stream:
            for _ in range(2):
                await stream.until("group_end")
            await running.topic("px.c", key=())
            filtered_out = (await stream.until("refused"))[-1]
            assert json.loads(filtered_out.text)["topic"] == "px.c"
            await running.topic("px.d")
            assert (await stream.until("subscribed"))[-1].name == "subscribed"
            await running.publish({"k": 1}, topic="px.a")
            await running.publish({"k": 2}, topic="px.d")
            seen = Follower()
            await seen.follow(stream, s1=2)
            view = await shown(running, session)
            assert [each["topic"] for each in view["topics"]] == ["px.a", "px.b", "px.d"]
            assert view["matched"] == view["delivered"] == 2


async def test_what_is_not_there_is_not_known() -> None:
    async with running_gateway() as running:
        session = await opened(running)
        for method in ("GET", "PATCH", "DELETE"):
            for sub in ("s1", "*", "s" * 65):
                path = f"/v1/sessions/{session}/subscriptions/{sub}"
                body = {"json": {"paused": True}} if method == "PATCH" else {}
                answer = await running.http.request(method, path, **body)  # type: ignore[arg-type]  # a body or none
                assert (answer.status_code, answer.json()["code"]) == (404, "subscription-unknown")


async def test_the_session_of_a_plain_get_can_be_looked_at_and_changed_but_not_added_to() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        async with running.subscribe("conflation=1h", command="subscribe") as stream:
            session = running.hellos[-1]["session"]
            assert (await shown(running, session))["topic"] == "px"
            await running.publish({"k": 1})
            changed = await patched(running, session, conflation="50ms")
            assert changed["options"] == "conflation=50ms,conflation_key=[/k],pace=batch"
            assert (await stream.next()).name == "conflation"
            assert await stream.values(1) == [{"k": 1}]
            path = f"/v1/sessions/{session}/subscriptions"
            answer = await running.http.post(path, json={"topic": "px"})
            assert (answer.status_code, answer.json()["code"]) == (400, "options-invalid")
            answer = await running.http.get(f"/v1/sessions/{session}/events")
            assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")
            assert (await running.http.delete(f"{path}/s1")).status_code == 204
            assert names(await stream.rest()) == ["unsubscribed", "goodbye"]
        answer = await running.http.get(f"/v1/sessions/{session}")
        assert (answer.json()["state"], answer.json()["reason"]) == ("ended", "UNSUBSCRIBED")


@rule("session-8")
async def test_a_session_has_so_many_subscriptions_and_no_more() -> None:
    async with running_gateway(session_subscriptions_max=7) as running:
        await running.topic("px")
        wanted = {"subscriptions": [{"topic": "px"}] * 8}
        answer = await running.http.post("/v1/sessions", json=wanted)
        assert (answer.status_code, answer.json()["code"]) == (429, "limit-reached")
        assert answer.json()["pointer"] == "/subscriptions"
        session = await opened(running, subscriptions=[{"topic": "px"}] * 7)
        path = f"/v1/sessions/{session}/subscriptions"
        answer = await running.http.post(path, json={"topic": "px"})
        assert (answer.status_code, answer.json()["code"]) == (429, "limit-reached")
        assert int(answer.headers["retry-after"]) > 0
        await running.http.delete(f"{path}/s7")
        assert (await subscribed(running, session, topic="px"))["sub"] == "s8"
