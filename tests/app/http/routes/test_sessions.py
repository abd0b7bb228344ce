"""`/v1/sessions`: opening, showing, tuning, listing, closing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateways import Running, eventually, running_gateway
from tests.support.sessions import attached, opened, subscribed

LIMITS = {"messages": 10_000, "bytes": 8 << 20, "upper": 80, "lower": 50}


async def shown(running: Running, session: str) -> dict[str, Any]:
    answer = await running.http.get(f"/v1/sessions/{session}")
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


@pytest.mark.parametrize("body", [None, b"", b"{}"])
async def test_a_session_is_opened_without_a_word(body: bytes | None) -> None:
    async with running_gateway() as running:
        headers = {"Content-Type": "application/json"} if body else {}
        answer = await running.http.post("/v1/sessions", content=body, headers=headers)
        assert answer.status_code == 201, answer.text
        session = answer.json()["session"]
        assert answer.json() == {
            "session": session, "events": f"/v1/sessions/{session}/events", "subscriptions": []
        }  # fmt: skip
        assert answer.headers["location"] == f"/v1/sessions/{session}"
        view = await shown(running, session)
        assert view.pop("opened_ms") > 1_600_000_000_000
        assert view == {
            "session": session, "owner": None, "topics": [],
            "state": "away", "reason": None, "unsent_bytes": 0, "delivered": 0,
            "address": None, "client": None, "queue": {"messages": 0, "bytes": 0},
            "limits": LIMITS, "conflated": True, "subscriptions": [],
        }  # fmt: skip


async def test_a_session_is_opened_with_all_that_is_wanted_or_not_at_all() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        wanted = [{"topic": "px", "options": "conflation=1s"}, {"topic": "px.*"}]
        session = await opened(
            running, subscriptions=wanted, conflated=False,
            limits={"messages": 5, "bytes": "1KiB", "upper": 60, "lower": 10},
        )  # fmt: skip
        view = await shown(running, session)
        assert view["limits"] == {"messages": 5, "bytes": 1024, "upper": 60, "lower": 10}
        assert (view["conflated"], len(view["subscriptions"])) == (False, 2)
        assert view["topics"] == ["px", "px.*"]
        [listed] = (await running.http.get("/v1/sessions")).json()["sessions"]
        assert (listed["topics"], listed["owner"]) == (["px", "px.*"], None)
        before = len(running.gateway.sessions.listed("", 100))
        refused = [*wanted, {"topic": "px", "filter": "/a ="}]
        answer = await running.http.post("/v1/sessions", json={"subscriptions": refused})
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (400, "filter-invalid")
        assert (problem["pointer"], problem["position"]) == ("/subscriptions/2", 4)
        assert len(running.gateway.sessions.listed("", 100)) == before


async def test_a_queue_and_what_the_socket_holds_are_shown() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running, subscriptions=[{"topic": "px", "command": "subscribe"}])
        async with attached(running, session):
            found = running.gateway.sessions.get(session)
            await running.publish(*[{"k": 1, "p": "x" * 50_000} for _ in range(200)])
            view = await shown(running, session)
            assert view["state"] == "attached"
            assert found.reader is not None
            assert view["unsent_bytes"] > 0
            assert view["queue"]["messages"] > 0
            assert view["queue"]["bytes"] > 50_000


async def test_a_session_is_tuned_while_it_runs() -> None:
    async with running_gateway() as running:
        await running.topic("px", conflation="off")
        session = await opened(running, subscriptions=[{"topic": "px", "command": "subscribe"}])
        path = f"/v1/sessions/{session}"
        answer = await running.http.patch(path, json={"limits": {"messages": 50}})
        assert answer.json()["limits"] == {**LIMITS, "messages": 50}
        async with attached(running, session) as stream:
            answer = await running.http.patch(path, json={"conflated": False})
            assert (answer.json()["conflated"], answer.json()["limits"]["messages"]) == (False, 50)
            await stream.next()  # how it goes on
            running.gateway.driver.engine.take(session, 1 << 20)
            tuned = {"limits": {"messages": 1, "lower": 1}}
            assert (await running.http.patch(path, json=tuned)).status_code == 200
            engine = running.gateway.driver.engine
            assert engine.session(session).limits.messages_max == 1


async def test_sessions_are_listed_by_id_page_by_page() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        ids = sorted([await opened(running) for _ in range(5)])
        async with running.subscribe():
            ids = sorted([*ids, running.hellos[-1]["session"]])
            found, address = list[str](), "/v1/sessions?limit=4"
            while address:
                page = (await running.http.get(address)).json()
                found += [each["session"] for each in page["sessions"]]
                address = page["next"]
            assert found == ids
            [own] = [each for each in page["sessions"] if each["session"] == ids[-1]] or [None]
            assert own is None or own["subscriptions"] in {0, 1}


@pytest.mark.parametrize("topic", ["px", "*"])
async def test_a_session_shows_who_reads_it_and_how_much(topic: str) -> None:
    """On both paths to a stream: one begins in the iteration of its request, the other later."""
    agent = "wall/2.1 " + "x" * 300
    async with running_gateway() as running:
        await running.topic()
        running.http.headers["User-Agent"] = agent
        async with running.subscribe("conflation=none", topic, command="subscribe") as stream:
            await running.publish({"k": 1}, {"k": 2})
            await stream.values(2 if topic == "px" else 1)  # a pattern's rows share an event
            [listed] = (await running.http.get("/v1/sessions")).json()["sessions"]
            whole = await shown(running, listed["session"])
    assert listed["client"] == whole["client"] == agent[:200]
    assert listed["delivered"] == whole["delivered"] == 2


async def test_one_session_too_many_gets_a_time_to_come_back() -> None:
    async with running_gateway(sessions_max=2) as running:
        await running.topic("px")
        session = await opened(running)
        async with running.subscribe():
            answer = await running.http.post("/v1/sessions")
            assert (answer.status_code, answer.json()["code"]) == (429, "limit-reached")
            assert int(answer.headers["retry-after"]) > 0
        assert (await running.http.delete(f"/v1/sessions/{session}")).status_code == 204
        await eventually(lambda: running.gateway.sessions.listed("", 9) == [], "both have ended")
        await opened(running)


async def test_while_stopping_no_session_is_opened_and_no_stream_either() -> None:
    async with running_gateway() as running:
        session = await opened(running)
        running.gateway.say_goodbye()
        answer = await running.http.post("/v1/sessions")
        assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
        answer = await running.http.get(f"/v1/sessions/{session}/events")
        assert (answer.status_code, b"not-ready" in answer.content) == (200, True)


async def test_a_plain_get_is_a_session_of_one_subscription() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        async with running.subscribe("conflation=1s"):
            session = running.hellos[-1]["session"]
            view = await shown(running, session)
            assert view["state"] == "attached"
            [sub] = view["subscriptions"]
            assert (sub["sub"], sub["topic"], sub["interval_ms"]) == ("s1", "px", 1_000)
        await eventually(lambda: running.gateway.sessions.get(session).has_ended, "it leaves")
        assert (await shown(running, session))["reason"] is None


async def test_an_ended_session_is_not_changed() -> None:
    async with running_gateway() as running:
        session = await opened(running)
        await running.http.delete(f"/v1/sessions/{session}")
        for method, path, body in (
            ("PATCH", "", {"conflated": False}), ("POST", "/subscriptions", {"topic": "px"}),
            ("GET", "/subscriptions", None), ("GET", "/subscriptions/s1", None),
        ):  # fmt: skip
            answer = await running.http.request(method, f"/v1/sessions/{session}{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")


async def test_nothing_of_a_session_is_left_in_the_engine_while_nobody_reads() -> None:
    async with running_gateway() as running:
        await running.topic("px")
        session = await opened(running)
        await subscribed(running, session, topic="px", options="conflation=1h")
        await subscribed(running, session, topic="px")
        stats = running.gateway.driver.engine.topic_stats
        assert (stats("px").subscriptions, stats("px").lanes) == (0, 0)
        async with attached(running, session):
            assert (stats("px").subscriptions, stats("px").lanes) == (2, 2)
        await eventually(lambda: stats("px").lanes == 0, "the reader leaves")
