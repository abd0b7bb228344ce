"""Coming back to a session: exactly what was missed, what ended, and why it was closed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.gateways import Remote, Running, Stream, eventually, names, running_gateway
from tests.support.rules import rule
from tests.support.sessions import Follower, attached, opened, subscribed


async def away(running: Running, session: str) -> None:
    """Wait until a session's reader has left."""
    found = running.gateway.sessions.get(session)
    await eventually(lambda: found.reader is None, "the reader leaves")


async def followed(
    running: Running, session: str, last_id: str = "", **until: int
) -> tuple[Follower, str]:
    """What a reader gets until it has so many rows, and its last id; then it leaves."""
    follower = Follower()
    async with attached(running, session, last_id) as stream:
        await follower.follow(stream, **until)
    await away(running, session)
    return follower, stream.last_id


async def view(remote: Remote, session: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await remote.http.get(f"/v1/sessions/{session}")).json()
    return shown


MODES = [
    ("conflation=50ms", "sow_and_subscribe", "changes", [{"k": 1, "v": 9}, {"k": 2, "v": 5}]),
    (
        "",
        "subscribe",
        "replay",
        [{"k": 1, "v": v} for v in (3, 4)] + [{"k": 2, "v": 5}, {"k": 1, "v": 9}],
    ),
    (
        "conflation=50ms,conflation_key=[/v]",
        "subscribe",
        "replay",
        [{"k": 1, "v": 3}, {"k": 1, "v": 4}, {"k": 2, "v": 5}, {"k": 1, "v": 9}],
    ),
]


@pytest.mark.parametrize(("options", "command", "mode", "wanted"), MODES)
async def test_exactly_what_was_missed_comes(
    options: str, command: str, mode: str, wanted: list[Any]
) -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options=options, command=command)
        async with attached(running, session) as stream:
            first = Follower()
            await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 2})
            await first.follow(stream, s1=2)
        await away(running, session)
        await running.publish({"k": 1, "v": 3}, {"k": 1, "v": 4}, {"k": 2, "v": 5})
        await running.publish({"k": 1, "v": 9})
        back, _ = await followed(running, session, stream.last_id, s1=len(wanted))
    assert sorted(back.values("s1"), key=str) == sorted(wanted, key=str)
    [resumed] = back.resumed
    assert (resumed["mode"], resumed["gap_messages"], resumed["closed"]) == (mode, 4, None)


async def test_a_number_that_is_too_old_continues_by_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=50ms")
        await running.publish({"k": 1}, {"k": 2})
        _, _ = await followed(running, session, s1=2)
        for last_id in (f"{session}-999999", f"{session}-{10**17}"):
            back, _ = await followed(running, session, last_id, s1=2)
            assert [each["mode"] for each in back.resumed] == ["snapshot"]


@rule("session-3")
async def test_who_names_no_id_has_nothing() -> None:
    """A snapshot is begun again; without one it goes on behind what was acknowledged."""
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=50ms")
        await subscribed(running, session, topic="px", command="subscribe")
        async with attached(running, session) as stream:
            await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 1})
            await Follower().follow(stream, s1=2, s2=2)
            cursor = running.gateway.sessions.get(session).cursor
            assert cursor is not None
            await eventually(lambda: cursor.confirmed == cursor.number, "it is acknowledged")
        await away(running, session)
        await running.publish({"k": 1, "v": 2})
        back, _ = await followed(running, session, s1=2, s2=1)
    assert sorted(row["v"] for row in back.values("s1")) == [1, 2]
    assert back.values("s2") == [{"k": 1, "v": 2}]


async def test_an_id_of_another_session_is_refused() -> None:
    async with running_gateway() as running:
        one, other = await opened(running), await opened(running)
        for last_id in (f"{other}-0", "e1-5", "zzq"):
            answer = await running.http.get(
                f"/v1/sessions/{one}/events", headers={"Last-Event-ID": last_id}
            )
            assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")


async def test_a_frozen_reader_learns_why_it_was_cut_when_it_is_back() -> None:
    async with running_gateway(write_timeout="300ms") as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=50ms")
        async with attached(running, session) as stream:
            await stream.until("group_end")
            left_at = stream.last_id
            version = 0
            found = running.gateway.sessions.get(session)
            while found.reader is not None:
                version += 1
                await running.publish(
                    *[{"k": k, "v": version, "p": "x" * 50_000} for k in range(9)]
                )
                await asyncio.sleep(0.05)
        shown = await view(running, session)
        assert (shown["state"], shown["reason"]) == ("away", "WRITE_TIMEOUT")
        back, _ = await followed(running, session, left_at, s1=9)
        assert {row["v"] for row in back.values("s1")} == {version}
        assert [each["closed"] for each in back.resumed] == ["WRITE_TIMEOUT"]
        assert (await view(running, session))["reason"] is None


@rule("session-4")
async def test_every_message_that_was_missed_is_more_than_may_wait() -> None:
    """A policy applies to what was missed; a reader that got the notice gets it all the same."""
    async with running_gateway() as running:
        await running.topic("log", key=(), conflation="off")
        session = await opened(running, limits={"messages": 10})
        await subscribed(running, session, topic="log")
        async with attached(running, session) as stream:
            left_at = stream.last_id
        await away(running, session)
        await running.publish(*range(11), topic="log")
        async with attached(running, session, left_at) as stream:
            [goodbye] = await stream.rest()
            assert json.loads(goodbye.text) == {
                "reason": "MESSAGE_QUEUE_LIMIT_REACHED",
                "reconnect": True,
            }
        await away(running, session)
        back, _ = await followed(running, session, stream.last_id, s1=11)
    assert back.values("s1") == list(range(11))
    assert [each["closed"] for each in back.resumed] == ["MESSAGE_QUEUE_LIMIT_REACHED"]


async def test_a_topic_that_unsubscribes_does_so_for_what_was_missed() -> None:
    async with running_gateway() as running:
        await running.topic("px", conflation="unsubscribe")
        await running.topic("fx")
        session = await opened(running, limits={"messages": 10})
        await subscribed(running, session, topic="px", command="subscribe")
        await subscribed(running, session, topic="px", options="conflation=1s")
        await subscribed(running, session, topic="fx", command="subscribe")
        async with attached(running, session) as stream:
            left_at = stream.last_id
        await away(running, session)
        await running.publish(*[{"k": 1, "v": v} for v in range(11)])
        await running.publish({"k": 1}, topic="fx")
        back, last_id = await followed(running, session, left_at, s3=1)
        assert [(each["sub"], each["reason"]) for each in back.ended] == [
            ("s1", "BACK_PRESSURE"),
            ("s2", "BACK_PRESSURE"),
        ]
        again, _ = await followed(running, session, last_id)
        assert again.ended == []
        granted = await subscribed(running, session, topic="px", command="subscribe")
        assert granted["sub"] == "s4"


async def test_a_topic_that_went_meanwhile_has_left_the_session() -> None:
    async with running_gateway() as running:
        for topic in ("px", "fx", "a.1", "a.2"):
            await running.topic(topic)
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=1s")
        await subscribed(running, session, topic="a.*", options="conflation=1s")
        for topic in ("px", "a.1"):
            await running.http.delete(f"/v1/topics/{topic}")
        async with attached(running, session) as stream:
            followed_again = [json.loads((await stream.next()).text) for _ in range(2)]
            assert followed_again == [
                {"sub": "s1", "topic": "px", "reason": "REMOVED"},
                {"sub": "s2", "topic": "a.1", "reason": "REMOVED"},
            ]
            assert [each["topic"] for each in running.hellos[-1]["subscriptions"]] == ["a.2"]
        shown = (await view(running, session))["subscriptions"]
        assert [(each["sub"], each["topic"]) for each in shown] == [("s2", "a.*")]


@rule("session-5")
async def test_an_end_that_was_not_read_is_sent_again_and_one_that_was_is_not() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        await running.topic("fx")
        session = await opened(running)
        for topic in ("px", "fx"):
            await subscribed(running, session, topic=topic, command="subscribe")
        async with attached(running, session) as stream:
            before = stream.last_id
            await running.http.delete(f"/v1/sessions/{session}/subscriptions/s1")
            await stream.until("unsubscribed")
            after = stream.last_id
        await away(running, session)
        for last_id, ends in ((after, []), (before, ["s1"])):
            async with attached(running, session, last_id) as stream:
                await running.publish({"k": 1}, topic="fx")
                followed_again = Follower()
                await followed_again.follow(stream, s2=1)
            await away(running, session)
            assert [each["sub"] for each in followed_again.ended] == ends


async def test_a_sow_that_broke_off_is_begun_again_and_a_finished_one_is_not() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        await running.publish({"k": 1}, {"k": 2})
        session = await opened(running)
        await subscribed(running, session, topic="px", command="sow")
        async with attached(running, session) as stream:
            begun_at = stream.last_id
            assert names(await stream.until("group_end"))[-1] == "group_end"
            ended_at = stream.last_id
        await away(running, session)
        back, _ = await followed(running, session, begun_at, s1=2)
        assert [each["mode"] for each in back.resumed] == ["snapshot"]
        async with attached(running, session, ended_at):
            assert running.hellos[-1]["subscriptions"] == []


async def test_what_a_pattern_took_while_nobody_read_is_not_lost() -> None:
    async with running_gateway() as running:
        session = await opened(running)
        await subscribed(running, session, topic="px.*", command="subscribe")
        await running.topic("px.a")
        await running.publish({"k": 1}, topic="px.a")
        followed_again, _ = await followed(running, session, s1=1)
    assert followed_again.values("s1") == [{"k": 1}]
    assert followed_again.topics == {"s1": "px.a"}


async def last(stream: Stream) -> dict[str, Any]:
    [value] = await stream.values(1)
    followed_again: dict[str, Any] = value
    return followed_again


@rule("session-7")
async def test_what_becomes_of_sessions_is_a_topic() -> None:
    """Read-only, keyed by session, without a record once nothing is known of it."""
    async with running_gateway(session_retention="300ms") as running:
        await running.topic("px")
        async with running.subscribe(
            "oof",
            topic="tidegate.sessions",
            command="subscribe",
            filter='/event != "opened"',
            format="envelope",
        ) as stream:
            session = await opened(running)
            async with attached(running, session):
                attached_at = await last(stream)
            lost, closed, gone = await last(stream), await last(stream), await last(stream)
        events = [each["value"]["event"] for each in (attached_at, lost, closed)]
        assert events == ["attached", "lost", "closed"]
        assert all(each["value"]["session"] == session for each in (attached_at, lost, closed))
        assert (gone["op"], gone["key"]) == ("oof", [session])
        for method, path in (
            ("POST", "messages"),
            ("DELETE", "sow?key=[]"),
            ("DELETE", ""),
            ("PUT", ""),
        ):
            address = f"/v1/topics/tidegate.sessions/{path}".rstrip("/")
            answer = await running.http.request(method, address)
            assert (answer.status_code, answer.json()["code"]) == (403, "topic-read-only"), method
        listed = (await running.http.get("/v1/topics")).json()["topics"]
        assert [each["topic"] for each in listed] == ["px"]
        own = (await running.http.get("/v1/topics?prefix=tidegate.")).json()["topics"]
        assert [each["topic"] for each in own] == [
            "tidegate.audit",
            "tidegate.pipelines",
            "tidegate.sessions",
        ]
