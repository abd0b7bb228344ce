"""Sessions over the wire: many subscriptions on one stream, changed while it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gateways import Running, eventually, names, running_gateway
from tests.support.sessions import Follower, attached, opened, subscribed


async def test_many_subscriptions_on_one_stream() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        await running.topic("fx")
        await running.publish({"k": 1}, topic="px")
        session = await opened(running)
        first = await subscribed(running, session, topic="px", options="conflation=50ms")
        second = await subscribed(running, session, topic="fx", command="subscribe")
        assert (first["sub"], second["sub"]) == ("s1", "s2")
        async with attached(running, session) as stream:
            hello = running.hellos[-1]
            assert (hello["session"], hello["epoch"]) == (session, None)
            assert [each["topic"] for each in hello["subscriptions"]] == ["px", "fx"]
            await running.publish({"k": 2}, topic="px")
            await running.publish({"k": 3}, topic="fx")
            follower = Follower()
            await follower.follow(stream, s1=2, s2=1)
        assert follower.values("s1") == [{"k": 1}, {"k": 2}]
        assert follower.values("s2") == [{"k": 3}]
        assert follower.topics == {"s1": "px", "s2": "fx"}


async def test_a_subscription_joins_and_leaves_while_the_stream_runs() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        async with attached(running, session) as stream:
            granted = await subscribed(running, session, topic="px", options="conflation=1s")
            event = await stream.next()
            assert (event.name, event.id) == ("subscribed", stream.hello_id)
            follower = json.loads(event.text)
            expected = {name: granted[name] for name in ("sub", "topic", "options", "lane")}
            assert follower == {**expected, "bookmark": None}
            assert names(await stream.until("group_end")) == ["group_begin", "group_end"]
            path = f"/v1/sessions/{session}/subscriptions/s1"
            assert (await running.http.delete(path)).status_code == 204
            ended = await stream.next()
            assert ended.name == "unsubscribed"
            assert json.loads(ended.text) == {"sub": "s1", "topic": "px", "reason": "REQUESTED"}
            assert (await running.http.delete(path)).status_code == 404
        assert (await view(running, session))["subscriptions"] == []


async def view(running: Running, session: str) -> dict[str, Any]:
    answer = await running.http.get(f"/v1/sessions/{session}")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_new_reader_ends_the_old_one() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", command="subscribe")
        async with attached(running, session) as old:
            await running.publish({"k": 1})
            await Follower().follow(old, s1=1)
            async with attached(running, session, last_id=old.last_id) as new:
                [goodbye] = await old.rest()
                assert json.loads(goodbye.text) == {"reason": "REPLACED", "reconnect": False}
                back = await running.http.get(
                    f"/v1/sessions/{session}/events", headers={"Last-Event-ID": goodbye.id}
                )
                assert back.status_code == 204, "its place is taken"
                assert (await new.next()).name == "resumed"
                await running.publish({"k": 2})
                follower = Follower()
                await follower.follow(new, s1=1)
                assert follower.values("s1") == [{"k": 2}]
                assert (await view(running, session))["state"] == "attached"


async def test_what_a_session_missed_is_found_when_its_reader_is_back() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        await running.topic("log", key=())
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=50ms")
        await subscribed(running, session, topic="log")
        follower = Follower()
        async with attached(running, session) as stream:
            await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 1})
            await running.publish("a", topic="log")
            await follower.follow(stream, s1=2, s2=1)
        await eventually(lambda: running.gateway.sessions.get(session).reader is None, "it leaves")
        assert (await view(running, session))["state"] == "away"
        await running.publish({"k": 1, "v": 2}, {"k": 1, "v": 3})
        await running.publish("b", "c", topic="log")
        async with attached(running, session, last_id=stream.last_id) as stream:
            back = Follower()
            await back.follow(stream, s1=1, s2=2)
        assert back.values("s1") == [{"k": 1, "v": 3}]
        assert back.values("s2") == ["b", "c"]
        assert [(each["sub"], each["mode"], each["closed"]) for each in back.resumed] == [
            ("s1", "changes", None),
            ("s2", "replay", None),
        ]


async def test_a_session_that_nobody_comes_back_to_is_forgotten() -> None:
    async with running_gateway(session_retention="50ms") as running:
        session = await opened(running)
        sessions = running.gateway.sessions
        await eventually(lambda: sessions.listed("", 10) == [], "it lapses")
        for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
            answer = await running.http.request(method, f"/v1/sessions/{session}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_session_that_is_closed_stays_closed(is_read: bool) -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", command="subscribe")
        path = f"/v1/sessions/{session}"
        if is_read:
            async with attached(running, session) as stream:
                assert (await running.http.delete(path)).status_code == 204
                follower = json.loads((await stream.rest())[-1].text)
                assert follower == {"reason": "CLOSED_BY_ADMIN", "reconnect": False}
        else:
            assert (await running.http.delete(path)).status_code == 204
        shown = await view(running, session)
        assert (shown["state"], shown["reason"]) == ("ended", "CLOSED_BY_ADMIN")
        assert (await running.http.get(f"{path}/events")).status_code == 204
        assert (await running.http.delete(path)).status_code == 204
        assert (await running.http.get("/v1/sessions")).json() == {"sessions": [], "next": None}


async def test_a_session_that_was_away_gets_each_key_once_however_much_it_missed() -> None:
    """It costs its keys, not the messages: with an interval, and where its list was too long."""
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=1s")
        await subscribed(running, session, topic="px", command="subscribe")
        async with attached(running, session) as stream:
            await running.publish({"k": 0, "v": -1})
            await Follower().follow(stream, s1=1, s2=1)
        await eventually(lambda: running.gateway.sessions.get(session).reader is None, "it leaves")
        for first in range(0, 100_000, 10_000):
            lines = [b'{"k":%d,"v":%d}' % (n % 50, n) for n in range(first, first + 10_000)]
            await running.publish_lines(b"\n".join(lines))
        newest = [{"k": n % 50, "v": n} for n in range(99_950, 100_000)]
        async with attached(running, session, last_id=stream.last_id) as stream:
            back = Follower()
            await back.follow(stream, s1=50, s2=50)
            await running.publish({"k": 50, "v": 0})
            await back.follow(stream, s1=51, s2=51)
        for name in ("s1", "s2"):
            assert back.values(name) == [*newest, {"k": 50, "v": 0}]
        assert {each["mode"] for each in back.resumed} == {"changes"}
