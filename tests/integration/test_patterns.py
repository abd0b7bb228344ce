"""Patterns over the wire: one stream over many topics, also those that are created later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gateways import JSON, Running, Stream, eventually, names, running_gateway
from tests.support.rules import rule


async def batches(stream: Stream, *topics: str) -> dict[str, Any]:
    """The next batch of each of these topics, in whatever order they come."""
    found: dict[str, Any] = {}
    while set(found) != set(topics):
        event = await stream.next()
        assert event.name == "message", event
        session = stream.hello_id.rpartition("-")[0]
        assert event.id.startswith(session + "-"), "a place in the session, not in a topic"
        batch = json.loads(event.text)
        found[batch["topic"]] = batch["rows"]
    return found


def listed(running: Running) -> list[tuple[str, str]]:
    return [(each["sub"], each["topic"]) for each in running.hellos[-1]["subscriptions"]]


async def test_every_topic_that_fits_is_followed() -> None:
    async with running_gateway() as running:
        for name in ("px.eur", "px.usd", "px.usd.near", "other"):
            await running.topic(name)
        async with running.subscribe(topic="px.*", command="subscribe") as stream:
            assert listed(running) == [("s1", "px.eur"), ("s1", "px.usd")]
            assert running.hellos[0]["epoch"] is None
            published = await running.publish({"k": 1}, topic="px.eur")
            await running.publish({"k": 2}, topic="px.usd.near")
            await running.publish({"k": 3}, topic="px.usd")
            rows = await batches(stream, "px.eur", "px.usd")
        [row] = rows["px.eur"]
        assert row["bookmark"] == published["last"]
        assert [row["value"] for row in rows["px.usd"]] == [{"k": 3}]


@rule("session-8")
async def test_a_pattern_that_has_grown_goes_on_with_the_topics_of_its_reader() -> None:
    async with running_gateway(session_subscriptions_max=2) as running:
        for name in ("px.a", "px.b", "px.c"):
            await running.topic(name)
        places = "px.b=unknown-0,px.c=unknown-0,px.gone=unknown-0"
        async with running.subscribe(topic="px.*", bookmarks=places) as stream:
            assert listed(running) == [("s1", "px.b"), ("s1", "px.c")]
            about = [await stream.next() for _ in range(2)]
        left = {event.name: json.loads(event.text) for event in about}
        assert left["refused"]["topic"] == "px.*"
        assert left["refused"]["code"] == "limit-reached"
        assert left["refused"]["detail"].endswith("Left out: px.a.")
        assert (left["unsubscribed"]["topic"], left["unsubscribed"]["reason"]) == (
            "px.gone",
            "REMOVED",
        )


async def test_snapshots_of_several_topics_say_whose_they_are() -> None:
    async with running_gateway() as running:
        for name in ("a.1", "a.2"):
            await running.topic(name)
            await running.publish({"k": name}, topic=name)
        async with running.subscribe("conflation=20ms", topic="a.%3E", command="sow") as stream:
            events = await stream.rest()
    assert names(events)[-1] == "goodbye"
    groups = [json.loads(event.text) for event in events if event.name.startswith("group")]
    assert sorted((group["topic"], group["rows"]) for group in groups) == [
        ("a.1", 1),
        ("a.1", 1),
        ("a.2", 1),
        ("a.2", 1),
    ]


async def test_a_topic_made_later_joins() -> None:
    async with (
        running_gateway() as running,
        running.subscribe("conflation=20ms", topic="px.>") as stream,
    ):
        assert listed(running) == []
        await running.topic("other")
        await running.topic("px.a.b")
        joined = await stream.next()
        assert joined.name == "subscribed"
        [lane] = (await running.http.get("/v1/lanes")).json()["lanes"]
        assert json.loads(joined.text) == {
            "sub": "s1",
            "topic": "px.a.b",
            "lane": lane["lane"],
            "options": "conflation=20ms,conflation_key=[/k],pace=batch",
            "bookmark": None,
        }
        assert names(await stream.until("group_end")) == ["group_begin", "group_end"]
        await running.publish({"k": 1}, topic="px.a.b")
        rows = await batches(stream, "px.a.b")
        assert [row["value"] for row in rows["px.a.b"]] == [{"k": 1}]


async def test_a_topic_that_is_published_into_being_joins_before_its_first_message() -> None:
    async with (
        running_gateway() as running,
        running.subscribe(topic="px.*") as stream,
    ):
        await running.publish(1, topic="px.new")
        assert names([await stream.next()]) == ["subscribed"]
        assert [row["value"] for row in (await batches(stream, "px.new"))["px.new"]] == [1]


async def test_a_topic_that_ends_is_announced_and_may_come_again() -> None:
    async with running_gateway() as running:
        await running.topic("px.a")
        async with running.subscribe(topic="px.*", command="subscribe") as stream:
            assert (await running.http.delete("/v1/topics/px.a")).status_code == 204
            ended = await stream.next()
            assert json.loads(ended.text) == {"sub": "s1", "topic": "px.a", "reason": "REMOVED"}
            await running.topic("px.a")
            assert (await stream.next()).name == "subscribed"
            await running.publish({"k": 1}, topic="px.a")
            assert await batches(stream, "px.a")


async def test_a_topic_that_does_not_fit_is_refused_at_first_and_passed_over_later() -> None:
    async with running_gateway() as running:
        await running.topic("px.plain", key=())
        refused = await running.http.get("/v1/topics/px.*/subscribe?options=conflation%3D1s")
        assert (refused.status_code, refused.json()["code"]) == (400, "options-invalid")
        assert running.gateway.driver.engine.stats().sessions == 0
        await running.http.delete("/v1/topics/px.plain")
        async with running.subscribe("conflation=20ms", topic="px.*") as stream:
            await running.topic("px.plain", key=())
            filtered_out = await stream.next()
            assert filtered_out.name == "refused"
            notices = json.loads(filtered_out.text)
            assert (notices["sub"], notices["topic"], notices["code"]) == (
                "s1",
                "px.plain",
                "options-invalid",
            )
            await running.topic("px.keyed")
            assert (await stream.next()).name == "subscribed"


async def test_a_peer_that_leaves_gets_no_more_topics() -> None:
    async with running_gateway() as running:
        stats = running.gateway.driver.engine.stats
        async with running.subscribe(topic="px.*"):
            assert stats().sessions == 1
        await eventually(lambda: stats().sessions == 0, "the session ends")
        await running.topic("px.a")
        assert running.gateway.driver.engine.topic_stats("px.a").subscriptions == 0


async def test_a_sow_of_no_topics_is_over_at_once() -> None:
    async with (
        running_gateway() as running,
        running.subscribe(topic="px.*", command="sow") as stream,
    ):
        assert names(await stream.rest()) == ["goodbye"]


async def test_posting_to_a_pattern_is_the_same() -> None:
    async with running_gateway() as running:
        await running.topic("px.a")
        path = "/v1/topics/px.*/subscribe"
        async with running.http.stream("POST", path, content=b"{}", headers=JSON) as answer:
            hello = await Stream(answer).next()
        assert [each["topic"] for each in json.loads(hello.text)["subscriptions"]] == ["px.a"]


@pytest.mark.parametrize("last_id", ["e1-1", "zzq", "AAAAAAAAAAAAAAAA-3"])
async def test_an_id_of_no_session_that_is_known_is_refused(last_id: str) -> None:
    async with running_gateway() as running:
        headers = {"Last-Event-ID": last_id}
        answer = await running.http.get("/v1/topics/px.*/subscribe", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")


async def test_a_reader_of_a_pattern_comes_back_to_its_session() -> None:
    async with running_gateway() as running:
        await running.topic("px.a")
        async with running.subscribe(topic="px.*", command="subscribe") as stream:
            await running.publish({"k": 1}, topic="px.a")
            await batches(stream, "px.a")
            left_at = stream.last_id
        await running.publish({"k": 2}, topic="px.a")
        await running.publish({"k": 3}, topic="px.made.later")
        await running.publish({"k": 4}, topic="px.b")
        again = running.subscribe(topic="px.*", last_id=left_at)
        async with again as stream:
            assert running.hellos[-1]["session"] == running.hellos[0]["session"]
            assert listed(running) == [("s1", "px.a"), ("s1", "px.b")]
            rows = [await stream.next() for _ in range(4)]
        assert names(rows) == ["resumed", "message", "resumed", "message"]
        notices = [json.loads(event.text) for event in rows]
        assert [(each["topic"], each["mode"]) for each in notices[::2]] == [
            ("px.a", "replay"),
            ("px.b", "replay"),
        ]
        assert [each["rows"][0]["value"]["k"] for each in notices[1::2]] == [2, 4]


@rule("session-11")
async def test_a_reader_whose_session_is_gone_goes_on_from_its_places() -> None:
    """Each topic from its own place, one made meanwhile from its beginning."""
    async with running_gateway() as running:
        for name in ("px.quiet", "px.busy", "px.gone"):
            await running.topic(name, key=())
        async with running.subscribe(topic="px.*", command="subscribe") as stream:
            hello = running.hellos[-1]
            begun = {each["topic"]: each["bookmark"] for each in hello["subscriptions"]}
            await running.publish({"v": 1}, topic="px.busy")
            await batches(stream, "px.busy")
            begun["px.busy"] = stream.last_id.partition("~")[2]
        await running.publish({"v": 2}, topic="px.busy")
        await running.publish({"v": 3}, topic="px.quiet")
        await running.publish({"v": 4}, topic="px.new")
        await running.http.delete("/v1/topics/px.gone")
        text = ",".join(f"{topic}={place}" for topic, place in begun.items())
        again = running.subscribe(topic="px.*", command="subscribe", bookmarks=text)
        async with again as stream:
            events = [await stream.next() for _ in range(7)]
    notices = [json.loads(event.text) for event in events]
    assert [each["topic"] for each in notices if each.get("reason") == "REMOVED"] == ["px.gone"]
    modes = {each["topic"]: each["mode"] for each in notices if "mode" in each}
    assert modes == dict.fromkeys(("px.busy", "px.quiet", "px.new"), "replay")
    values = {
        each["topic"]: [row["value"]["v"] for row in each["rows"]]
        for each in notices
        if "rows" in each
    }
    assert values == {"px.busy": [2], "px.quiet": [3], "px.new": [4]}


@rule("session-5", "session-11")
async def test_topics_that_are_gone_are_one_step_with_one_id() -> None:
    """Thousands of readers that name hundreds of topics would fill the memory otherwise."""
    async with running_gateway() as running:
        names = [f"px.{number}" for number in range(200)]
        text = ",".join(f"{name}=e1-1" for name in names)
        again = running.subscribe(topic="px.*", command="subscribe", bookmarks=text)
        async with again as stream:
            first, told = stream.hello_id, [await stream.next() for _ in names]
        ids = [event.id for event in told]
        assert sorted(json.loads(event.text)["topic"] for event in told) == sorted(names)
        assert {event.name for event in told} == {"unsubscribed"}
        assert set(ids[:-1]) == {first}, "whoever breaks off here has the others to come"
        [session] = running.gateway.sessions.listed("", 2)
        assert session.cursor is not None
        assert len(session.cursor.endings) == 1
        assert ids[-1] == session.cursor.text
        async with running.subscribe(topic="px.*", last_id=first) as stream:
            again_told = [await stream.next() for _ in names]
        assert [event.text for event in again_told] == [event.text for event in told]
        await running.topic("px.new")
        async with running.subscribe(topic="px.*", last_id=again_told[-1].id) as stream:
            assert (await stream.next()).name == "resumed", "it has had the ends"


@rule("session-11")
async def test_who_leaves_before_the_first_row_comes_back_to_the_same_places() -> None:
    """The session that goes on has the places that were brought as its own."""
    async with running_gateway() as running:
        await running.topic("px.a", key=())
        await running.publish({"v": 1}, {"v": 2}, topic="px.a")
        epoch = (await running.http.get("/v1/topics/px.a")).json()["epoch"]
        again = running.subscribe(topic="px.*", command="subscribe", bookmarks=f"px.a={epoch}-1")
        async with again as stream:
            first = stream.hello_id
        async with running.subscribe(topic="px.*", last_id=first) as stream:
            assert (await stream.next()).name == "resumed"
            [row] = (await batches(stream, "px.a"))["px.a"]
    assert row["value"] == {"v": 2}


@rule("session-11")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("px/subscribe?bookmarks=px=e1-1", "bookmark-invalid"),
        ("px.*/subscribe?bookmarks=px", "bookmark-invalid"),
        ("px.*/subscribe?bookmarks=px.a=e1-1&command=sow", "options-invalid"),
    ],
)
async def test_places_that_say_nothing_are_refused(path: str, code: str) -> None:
    async with running_gateway() as running:
        await running.topic("px")
        answer = await running.http.get(f"/v1/topics/{path}")
    assert (answer.status_code, answer.json()["code"]) == (400, code)
