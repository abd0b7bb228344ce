"""Equal requests to subscribe share a plan: the answers stay, and nothing of a client is in it."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.gateways import Running, eventually, names, running_gateway
from tests.support.wire import connected, parse_head
from tidegate.app.http.hot_path import DirectRoutes, HotPath
from tidegate.app.http.routes import subscribe_plan
from tidegate.app.http.routes.subscribe_plan import SubscribePlan, SubscribePlans
from tidegate.app.logs import EVENT, FIGURES

PATH = "/v1/topics/px/subscribe"
SESSION = re.compile(rb"s[A-Za-z0-9_-]{16}")

REQUESTS = [
    "?options=conflation=1s",
    "?options=conflation=1s&command=subscribe&format=envelope",
    "?options=conflation%3D1s,pace%3Dkey&filter=/k%20%3D%201",
    "?command=sow",
    "?command=sow&order_by=/k",
    "?options=conflation=auto,progress",
    "?options=conflation=1s&last_event_id=unknown-1",
    "?options=nothing",
    "?options=conflation=1s,conflation=2s",
    "?options=conflation=1s&options=conflation=1s",
    "?filter=/k%20=",
    "?filter=%ff",
    "?command=none",
    "?format=none",
    "?none=1",
    "?bookmarks=px=e1-7",
    "?last_event_id=%20",
    "?options=bookmark=e-9,bookmark_not_found=fail",
    "?options=" + "x" * 5_000,
]
HEADERS = [
    (),
    ("Accept: text/event-stream",),
    ("Accept: text/html",),
    ("Accept: text/*;q=0, */*",),
    ("Accept: text/html", "Accept: text/event-stream"),
    ("Last-Event-ID: e1-7",),
    ("Last-Event-ID: e1-7", "Last-Event-ID: e1-7"),
    ("Last-Event-ID: \xe9",),
    ("Accept-Encoding: gzip",),
]


@pytest_asyncio.fixture(name="running")
async def running_fixture() -> AsyncIterator[Running]:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        yield running


async def answered(running: Running, target: str, *headers: str) -> tuple[object, ...]:
    """The answer of a request: status, header and body, or the first event of a stream."""
    async with connected(running.address) as wire:
        lines = [f"GET {target} HTTP/1.1", "Host: localhost", *headers]
        await wire.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        head = await wire.read_until(b"\r\n\r\n")
        status, fields = parse_head(head)
        del fields["date"]
        length = fields.get("content-length")
        if length is not None:
            return status, fields, await wire.reader.readexactly(int(length))
        if status == 204:
            return status, fields
        first = await wire.read_until(b"\r\n")  # the size of the first piece
        body = await wire.reader.readexactly(int(first, 16))
        if fields.get("content-encoding") == "gzip":
            return status, fields, first
        return status, fields, SESSION.sub(b"session", body)


@pytest.mark.parametrize("headers", HEADERS, ids=str)
async def test_every_repetition_is_answered_as_without_plans(
    running: Running, headers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [PATH + query for query in REQUESTS]
    targets += ["/v1/topics/none/subscribe", "/v1/topics/%70x/subscribe", "/v1/topics/p*/subscribe"]
    of = SubscribePlans.of
    with monkeypatch.context() as patched:
        patched.setattr(HotPath, "kind_of", lambda *_: None)
        patched.setattr(DirectRoutes, "__call__", lambda direct, *call: direct.app(*call))
        patched.setattr(SubscribePlans, "of", lambda _, scope: of(SubscribePlans(), scope))
        without = [await answered(running, target, *headers) for target in targets]
    for _ in range(2):
        again = [await answered(running, target, *headers) for target in targets]
        assert again == without


async def test_equal_requests_are_read_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SubscribePlan] = []
    make = SubscribePlan.__init__

    def noted(plan: SubscribePlan, *parts: Any) -> None:
        make(plan, *parts)
        made.append(plan)

    monkeypatch.setattr(SubscribePlan, "__init__", noted)
    for options, plans in (("conflation=1s", 1), ("conflation=1s", 1), ("conflation=2s", 2)):
        async with running.subscribe(options):
            assert len(made) == plans


def test_the_plan_used_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe_plan, "PLANS_MAX", 2)
    plans = SubscribePlans()

    def plan_of(query: bytes) -> SubscribePlan:
        return plans.of({"raw_path": PATH.encode(), "query_string": query, "headers": []})

    first, second = plan_of(b"command=sow"), plan_of(b"command=subscribe")
    assert plan_of(b"command=sow") is first
    plan_of(b"options=conflation%3D1s")
    assert plan_of(b"command=sow") is first
    assert plan_of(b"command=subscribe") is not second
    long = b"filter=" + b"x" * 3_000
    assert plan_of(long) is not plan_of(long)


async def test_what_a_client_accepts_counts_each_time(running: Running) -> None:
    for accept, status in (("text/event-stream", 200), ("text/html", 406), ("*/*", 200)) * 2:
        assert (await answered(running, PATH, f"Accept: {accept}"))[0] == status


async def test_equal_queries_of_two_topics_are_two_requests(running: Running) -> None:
    await running.topic("py")
    for topic in ("px", "py", "px", "py"):
        async with running.subscribe("conflation=1s", topic):
            assert running.hellos[-1]["subscriptions"][0]["topic"] == topic


async def test_a_topic_that_is_defined_anew_is_seen_at_once(running: Running) -> None:
    async with running.subscribe(command="subscribe"):
        assert running.hellos[-1]["subscriptions"][0]["options"] == "conflation=none"
    await running.topic(options="conflation=1s")
    async with running.subscribe(command="subscribe"):
        assert "conflation=1s" in running.hellos[-1]["subscriptions"][0]["options"]


async def test_a_topic_that_is_created_again_is_seen_at_once(running: Running) -> None:
    for key, first in ((["/k"], "group_begin"), (["/v"], "group_begin")):
        async with running.subscribe("conflation=1h") as stream:
            assert (await stream.next()).name == first
            epoch = running.hellos[-1]["epoch"]
        await running.http.delete("/v1/topics/px")
        assert (await answered(running, PATH + "?options=conflation%3D1h"))[0] == 404
        await running.topic(key=key)
        async with running.subscribe("conflation=1h"):
            assert running.hellos[-1]["epoch"] != epoch


async def test_a_topic_that_has_no_records_any_more_is_seen_at_once(running: Running) -> None:
    async with running.subscribe(command="sow") as stream:
        assert names(await stream.until("goodbye"))[-1] == "goodbye"
    await running.http.delete("/v1/topics/px")
    await running.topic(key=())
    assert (await running.http.get(PATH, params={"command": "sow"})).status_code == 400


async def test_each_client_continues_from_its_own_place(running: Running) -> None:
    places = [(await running.publish({"k": at}))["last"] for at in (3, 4, 5)]
    missed = {places[0]: [{"k": 4}, {"k": 5}], places[1]: [{"k": 5}]}
    for last_id in (places[0], places[1], places[0]):
        async with running.subscribe(command="subscribe", last_id=last_id) as stream:
            assert (await stream.next()).name == "resumed"
            assert await stream.values(len(missed[last_id])) == missed[last_id]


async def test_a_new_client_does_not_get_the_place_of_one_that_came_back(running: Running) -> None:
    place = (await running.publish({"k": 3}))["last"]
    head = (await running.publish({"k": 4}))["last"]
    for _ in range(2):
        async with running.subscribe(command="subscribe", last_id=place) as stream:
            assert (await stream.next()).name == "resumed"
        async with running.subscribe(command="subscribe") as stream:
            assert stream.hello_id == head
            await running.publish({"k": 5})
            assert await stream.values(1) == [{"k": 5}]
            head = stream.last_id


async def test_only_a_client_that_takes_gzip_gets_it(running: Running) -> None:
    for coding in ("gzip", "identity", "gzip", "identity"):
        asked = {"Accept-Encoding": coding}
        async with running.http.stream("GET", PATH, headers=asked) as answer:
            assert answer.headers.get("content-encoding", "identity") == coding
            is_plain = b"event: hello" in await anext(answer.aiter_raw())
            assert is_plain is (coding == "identity")


async def test_each_stream_has_a_session_of_its_own(running: Running) -> None:
    for _ in range(3):
        async with running.subscribe("conflation=1s"):
            pass
    assert len({hello["session"] for hello in running.hellos}) == 3


async def test_a_change_of_one_stream_leaves_equal_ones_alone(running: Running) -> None:
    async with running.subscribe("conflation=1s"), running.subscribe("conflation=1s") as other:
        session = running.hellos[-2]["session"]
        changed = await running.http.patch(
            f"/v1/sessions/{session}/subscriptions/s1", json={"options": "conflation=1h"}
        )
        assert changed.status_code == 200, changed.text
        async with running.subscribe("conflation=1s"):
            first, second = running.hellos[-2:]
            assert first["subscriptions"] == second["subscriptions"]
        assert other.answer.status_code == 200


async def test_the_log_names_the_route_of_both(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def lines() -> list[dict[str, Any]]:
        logged = [one for one in caplog.records if getattr(one, EVENT, "") == "request"]
        return [getattr(one, FIGURES) for one in logged][1:]  # the first one made the topic

    async with running_gateway(log_requests=True) as running:
        await running.topic()
        for number in (1, 2):
            async with running.subscribe():
                pass
            await eventually(lambda number=number: len(lines()) == number, "the stream ends")  # type: ignore[misc]  # a default for the loop's number
    first, second = lines()
    for name in ("method", "route", "topic", "status", "client"):
        assert first[name] == second[name]
    assert first["route"] == "/v1/topics/{topic}/subscribe"
