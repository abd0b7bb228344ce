"""What each subject may do, and what it learns of the rest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.gateways import Running, Stream, running_gateway
from tests.support.rules import rule
from tests.support.tokens import grant, public_jwk, token_of, write_keys
from tidegate.app.definitions.topic import Unusable
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.registry import Fault

ROOT = token_of("root", "read,write,admin,observe >")
READER = token_of("ann", "read prices.>")
WRITER = token_of("wes", "write prices.>")
ADMIN = token_of("ada", "admin prices.>")
OBSERVER = token_of("obi", "observe >")
NOBODY = token_of("nia")
FILTERED = token_of("fay", grant("read prices.>", filter="/desk = 'a'"))
LIMITED = token_of("liz", grant("read prices.>", select="[-/,+/k]"))


@contextlib.asynccontextmanager
async def guarded(folder: Path, **more: Any) -> AsyncIterator[Running]:
    """A gateway with two topics, one of which no subject here may see but root."""
    keys = write_keys(folder / "keys.json", public_jwk("HS256"))
    async with running_gateway(auth_keys=keys, **more) as running:
        for topic in ("prices.eu", "secret"):
            body = {"key": ["/k"]}
            answer = await running.http.put(f"/v1/topics/{topic}", json=body, headers=ROOT)
            assert answer.status_code == 201, answer.text
            message = {"k": "canary", "desk": "a"}
            path = f"/v1/topics/{topic}/messages"
            answer = await running.http.post(path, json=message, headers=ROOT)
            assert answer.status_code == 200, answer.text
        yield running


async def code(running: Running, method: str, path: str, headers: Any, **more: Any) -> str:
    answer = await running.http.request(method, path, headers=headers, **more)
    if answer.status_code < 400:
        return str(answer.status_code)
    assert "canary" not in answer.text
    return str(answer.json()["code"])


@rule("access-4")
async def test_each_verb_opens_its_routes_and_no_other(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:

        async def codes(headers: Any, topic: str = "prices.eu") -> list[str]:
            at = f"/v1/topics/{topic}"
            body = {"key": ["/k"]}
            return [
                await code(running, "GET", f"{at}/sow", headers),
                await code(running, "GET", f"{at}/messages", headers),
                await code(running, "GET", at, headers),
                await code(running, "POST", f"{at}/messages", headers, json={"k": 1}),
                await code(running, "PUT", at, headers, json=body),
                await code(running, "GET", "/metrics", headers),
                await code(running, "GET", "/v1/lanes", headers),
                await code(running, "GET", "/v1/history", headers),
            ]

        no = "forbidden"
        assert await codes(READER) == ["200", "200", "200", no, no, no, no, no]
        assert await codes(WRITER) == [no, no, no, "200", no, no, no, no]
        assert await codes(ADMIN) == [no, no, "200", no, "200", no, no, no]
        assert await codes(OBSERVER) == [no, no, no, no, no, "200", "200", "200"]
        assert await codes(NOBODY) == [no] * 8
        assert await codes(ROOT) == ["200"] * 8
        for subject in (READER, WRITER, ADMIN, NOBODY):
            assert await codes(subject, "secret") == [no] * 8


@rule("access-5")
async def test_a_topic_that_may_not_be_read_answers_as_one_that_does_not_exist(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as running:
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/sow", None),
            ("GET", "/sow/[1]", None),
            ("GET", "/messages", None),
            ("GET", "/subscribe", None),
            ("PUT", "", {}),
            ("DELETE", "", None),
            ("DELETE", "/sow?key=[1]", None),
            ("POST", "/messages", {}),
        ):
            answers = [
                await running.http.request(
                    method, f"/v1/topics/{name}{path}", headers=READER, json=body
                )
                for name in ("secret", "nosuch")
            ]
            assert [it.status_code for it in answers] == [403, 403], path
            assert answers[0].text == answers[1].text
        for topic in ("secret", "nosuch"):
            explained = {"topic": topic}
            assert await code(running, "POST", "/v1/explain", READER, json=explained) == "forbidden"
            opening = {"subscriptions": [{"topic": topic}]}
            answer = await running.http.post("/v1/sessions", json=opening, headers=READER)
            assert (answer.status_code, answer.json()["pointer"]) == (403, "/subscriptions/0")


@rule("access-5")
async def test_lists_and_patterns_leave_out_what_may_not_be_read(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        listed = (await running.http.get("/v1/topics", headers=READER)).json()
        assert [it["topic"] for it in listed["topics"]] == ["prices.eu"]
        assert (await running.http.get("/v1/topics", headers=WRITER)).json()["topics"] == []
        path = "/v1/topics/%3E/subscribe"
        async with running.http.stream("GET", path, headers=READER) as answer:
            stream = Stream(answer)
            hello = json.loads((await stream.next()).text)
            assert [it["topic"] for it in hello["subscriptions"]] == ["prices.eu"]
            await stream.until("group_end")
            for name in ("secret.two", "prices.us"):
                body = {"key": ["/k"]}
                await running.http.put(f"/v1/topics/{name}", json=body, headers=ROOT)
            event = await stream.next()
            assert (event.name, json.loads(event.text)["topic"]) == ("subscribed", "prices.us")
        assert await code(running, "GET", path, WRITER) == "forbidden"


@rule("access-6")
async def test_a_session_is_its_owner_s(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        body = {"subscriptions": [{"topic": "prices.eu"}]}
        opened = await running.http.post("/v1/sessions", json=body, headers=READER)
        at = opened.headers["location"]
        other = token_of("eve", "read,write,admin prices.>")
        for method, path, more in (
            ("GET", "", {}),
            ("GET", "/events", {}),
            ("GET", "/subscriptions", {}),
            ("GET", "/subscriptions/s1", {}),
            ("GET", "/subscriptions/s1/auto", {}),
            ("PATCH", "", {"json": {"conflated": False}}),
            ("PATCH", "/subscriptions/s1", {"json": {"paused": True}}),
            ("POST", "/subscriptions", {"json": {"topic": "prices.eu"}}),
            ("DELETE", "/subscriptions/s1", {}),
            ("DELETE", "", {}),
        ):
            assert await code(running, method, at + path, other, **more) == "session-unknown"
        assert await code(running, "GET", at, OBSERVER) == "200"
        assert await code(running, "GET", f"{at}/events", OBSERVER) == "session-unknown"
        assert await code(running, "DELETE", at, OBSERVER) == "session-unknown"
        shown = (await running.http.get(at, headers=OBSERVER)).json()
        assert (shown["owner"], shown["topics"]) == ("ann", ["prices.eu"])
        assert await code(running, "GET", at, READER) == "200"

        async def sessions(headers: Any) -> list[str]:
            answer = await running.http.get("/v1/sessions", headers=headers)
            return [it["session"] for it in answer.json()["sessions"]]

        assert await sessions(other) == []
        assert len(await sessions(READER)) == len(await sessions(OBSERVER)) == 1
        added = {"topic": "secret"}
        assert await code(running, "POST", f"{at}/subscriptions", READER, json=added) == "forbidden"
        assert await code(running, "DELETE", at, READER) == "204"


async def test_no_topic_is_filled_from_one_that_may_not_be_read(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        filled = {"source": {"topic": "secret", "interval": "1s"}}
        at = "/v1/topics/prices.copy"
        assert await code(running, "PUT", at, ADMIN, json=filled) == "forbidden"
        both = token_of("amy", "admin,read prices.>")
        assert await code(running, "PUT", at, both, json=filled) == "forbidden"
        filled["source"]["topic"] = "prices.eu"
        assert await code(running, "PUT", at, both, json=filled) == "201"
        patch = {"source": {"topic": "secret"}}
        assert await code(running, "PATCH", at, both, json=patch) == "forbidden"


async def test_publishing_makes_no_topic_unless_that_is_wanted(tmp_path: Path) -> None:
    path = "/v1/topics/prices.new/messages"
    async with guarded(tmp_path) as running:
        assert await code(running, "POST", path, WRITER, json={}) == "topic-unknown"
    async with guarded(tmp_path, auto_create_topics=True) as running:
        assert await code(running, "POST", path, WRITER, json={}) == "200"


async def test_a_trace_needs_the_topic_as_well(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        body = {"subscriptions": [{"topic": "prices.eu"}]}
        opened = await running.http.post("/v1/sessions", json=body, headers=READER)
        at = opened.headers["location"] + "/subscriptions/s1/trace"
        assert await code(running, "GET", at, READER) == "forbidden"
        assert await code(running, "GET", at, OBSERVER) == "forbidden"
        assert await code(running, "GET", at, ROOT) == "200"


@pytest.mark.parametrize("headers", [None, NOBODY])
async def test_health_asks_for_nothing_and_unknown_paths_for_a_token(
    tmp_path: Path, headers: Any
) -> None:
    async with guarded(tmp_path) as running:
        for path in ("/healthz", "/readyz", "/", "/docs", "/static/app.js"):
            answer = await running.http.get(path, headers=headers)
            assert answer.status_code in {200, 404}, path
        found = await running.http.get("/v1/nosuch", headers=headers)
        assert found.status_code == (401 if headers is None else 404)
        assert (await running.http.get("/openapi.json", headers=headers)).status_code == (
            401 if headers is None else 200
        )


@rule("access-4")
async def test_a_removal_in_an_envelope_needs_the_whole_topic_as_well(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        path = "/v1/topics/prices.eu/messages"
        removal = {"key": ["canary"], "reason": "deleted"}
        lines = b'{"value":{"k":"new"}}\n{"key":["canary"],"reason":"deleted"}\n'
        narrowed = (
            token_of("fay", grant("read,write prices.>", filter="/desk = 'a'")),
            token_of("liz", grant("read,write prices.>", select="[-/,+/k]")),
        )

        async def publish(headers: dict[str, str], **more: Any) -> str:
            return await code(running, "POST", f"{path}?format=envelope", headers, **more)

        async def keys() -> list[str]:
            answer = await running.http.get("/v1/topics/prices.eu/sow", headers=ROOT)
            return [json.loads(line)["k"] for line in answer.text.splitlines()]

        for subject in (WRITER, *narrowed):
            assert await publish(subject, json=removal) == "forbidden"
            staged = {**subject, "Tidegate-Stage": "one"}
            assert await publish(staged, json=removal) == "forbidden"
            several = {**subject, "Content-Type": "application/x-ndjson"}
            assert await publish(several, content=lines) == "forbidden"
            retried = {**subject, "Idempotency-Key": "one"}
            assert await publish(retried, json=removal) == "forbidden"
        assert await keys() == ["canary"]
        assert await publish(WRITER, json={"value": {"k": "other"}}) == "200"
        both = token_of("bob", "read,write prices.>")
        assert await publish(both, json=removal) == "200"
        assert await keys() == ["other"]


@rule("access-5")
async def test_readiness_names_no_topic_to_who_may_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [Fault("prices.eu", "unusable", "r"), Fault("secret", "unusable", "r")]
    bus = SimpleNamespace(connection=SimpleNamespace(foreign={"px:secret": "a list"}))
    async with guarded(tmp_path) as running:
        with monkeypatch.context() as patched:
            patched.setattr(Catalog, "faults", lambda _: faults)
            patched.setattr(running.gateway, "bus", bus)

            async def shown(headers: dict[str, str] | None) -> tuple[list[str], bool]:
                answer = await running.http.get("/readyz", headers=headers)
                state = answer.json()
                assert (answer.status_code, state["status"]) == (200, "ready")
                assert state["topics_at_fault"] == len(faults)
                return [it["topic"] for it in state.get("topics", ())], "bus" in state

            bad = {"Authorization": "Bearer a.b.c"}
            for headers in (None, bad, NOBODY, WRITER, FILTERED):
                assert await shown(headers) == ([], False)
            assert await shown(READER) == (["prices.eu"], False)
            assert await shown(OBSERVER) == ([], True)
            assert await shown(ROOT) == (["prices.eu", "secret"], True)


@rule("access-4")
async def test_a_delta_does_not_tell_a_writer_which_records_there_are(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        path = "/v1/topics/prices.eu/messages"
        schema = {"type": "object", "required": ["k", "desk"]}
        body = {"key": ["/k"], "schema": schema}
        answer = await running.http.put("/v1/topics/prices.eu", json=body, headers=ROOT)
        assert answer.status_code == 200, answer.text

        async def answered(key: str, headers: dict[str, str]) -> str:
            patch = {"json": {"k": key}, "params": {"delta": "true"}}
            return await code(running, "POST", path, headers, **patch)

        # The schema would refuse a delta of a record that is not there, and of no other.
        partly = token_of("pam", "write prices.>", grant("read prices.>", filter="/desk = 'a'"))
        for headers in (WRITER, partly):
            assert await answered("canary", headers) == "forbidden"
            assert await answered("nosuch", headers) == "forbidden"
        assert await code(running, "POST", path, WRITER, json={"k": "v", "desk": "b"}) == "200"
        both = token_of("bo", "read,write prices.>")
        assert await answered("canary", both) == "200"
        assert await answered("nosuch", both) == "schema-violation"


@rule("access-6")
async def test_an_observer_sees_what_concerns_the_topics_of_its_grant_alone(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    root = token_of("root", "read,write,admin,observe >")
    async with running_gateway(auth_keys=keys) as running:
        made = {}
        for topic in ("px", "secret"):
            await running.http.put(f"/v1/topics/{topic}", json={"key": ["/k"]}, headers=root)
        for name, topics in (("px", ["px"]), ("secret", ["secret"]), ("both", ["px", "secret"])):
            body = {"subscriptions": [{"topic": each} for each in topics]}
            answer = await running.http.post("/v1/sessions", json=body, headers=root)
            made[name] = answer.json()["session"]
            stream = await running.http.send(
                running.http.build_request("GET", answer.json()["events"], headers=root),
                stream=True,
            )
            assert stream.status_code == 200
        observer = token_of("obi", "observe px")

        async def seen(path: str) -> Any:
            return await running.http.get(path, headers=observer)

        listed = (await seen("/v1/sessions")).json()["sessions"]
        assert [each["session"] for each in listed] == [made["px"]]
        statuses = {
            name: (await seen(f"/v1/sessions/{it}")).status_code for name, it in made.items()
        }
        assert statuses == {"px": 200, "secret": 404, "both": 404}
        lanes = (await seen("/v1/lanes")).json()["lanes"]
        assert {each["topic"] for each in lanes} == {"px"}
        assert (await seen("/v1/lanes?topic=secret")).status_code == 403
        assert (await seen("/metrics")).status_code == 403
        everything = await running.http.get("/metrics", headers=root)
        assert everything.status_code == 200
        # A pattern tells what its reader waits for, also while there is no such topic.
        for pattern, is_seen in (("secret.>", False), (">", False), ("px.>", False), ("px", True)):
            body = {"subscriptions": [{"topic": pattern, "filter": "/k = 'canary'"}]}
            answer = await running.http.post("/v1/sessions", json=body, headers=root)
            at = f"/v1/sessions/{answer.json()['session']}"
            assert ((await seen(at)).status_code == 200) is is_seen, pattern
            listed = (await seen("/v1/sessions")).json()["sessions"]
            assert (at.rpartition("/")[2] in {each["session"] for each in listed}) is is_seen
        # Nor does a trace tell what is subscribed to in a session that may not be seen.
        for topic in ("px", "secret", "nosuch"):
            at = f"/v1/sessions/{made['both']}/subscriptions/s1/trace?topic={topic}"
            assert (await seen(at)).json()["code"] == "session-unknown"
        # Nor does its end open a session, nor close it.
        for name, it in made.items():
            at = f"/v1/sessions/{it}"
            assert await code(running, "DELETE", at, root) == "204"
            assert (await seen(at)).status_code == statuses[name]
            assert (await running.http.get(at, headers=OBSERVER)).json()["state"] == "ended"
        # Its own sessions are its own, whatever it may observe.
        reader = token_of("obi", "observe px", "read secret")
        body = {"subscriptions": [{"topic": "secret"}]}
        answer = await running.http.post("/v1/sessions", json=body, headers=reader)
        own = f"/v1/sessions/{answer.json()['session']}"
        assert (await running.http.get(own, headers=reader)).status_code == 200


@rule("access-5")
async def test_a_bookmark_does_not_tell_whether_a_topic_is_there(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        catalog = running.gateway.catalog
        unusable = Unusable("secret", b'{"key":["/k"],"merge":"no:such"}', "e1", "No such merger.")
        catalog.set_aside(unusable)
        for topic in ("secret", "nosuch"):
            path = f"/v1/topics/%3E/subscribe?bookmarks={topic}=e1-7"
            async with running.http.stream("GET", path, headers=READER) as answer:
                [*_, end] = await Stream(answer).until("unsubscribed")
            assert json.loads(end.text) == {"sub": "s1", "topic": topic, "reason": "REMOVED"}
