"""Definitions that a gateway cannot use cost their own topic and nothing else.

Rules topic-13 to topic-16 are shown here.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.buses import BusServer
from tests.support.commands import call, serving_here
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.app.stores.folder import DATABASE

pytestmark = [pytest.mark.system, rule("topic-13", "topic-14", "topic-15", "topic-16")]

TOO_LONG = "99999999999999999999w"
MERGER = "operator:concat"
PREFIXES = (f"unusable-{number}" for number in itertools.count())


@contextlib.contextmanager
def gateway(**given: Any) -> Iterator[httpx2.Client]:
    """A gateway of these settings in a thread."""
    with (
        serving_here(**given) as address,
        httpx2.Client(base_url=address, timeout=HANGS_S, trust_env=False) as http,
    ):
        yield http


@pytest.fixture(autouse=True)
def no_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [it.getMessage() for it in caplog.records if it.exc_info] == []


def put(http: httpx2.Client, topic: str, status: int = 201, **document: object) -> Any:
    answer = http.put(f"/v1/topics/{topic}", json=document)
    assert answer.status_code == status, answer.text
    return answer.json()


def publish(http: httpx2.Client, topic: str, value: object, status: int = 200) -> Any:
    answer = http.post(f"/v1/topics/{topic}/messages", json=value)
    assert answer.status_code == status, answer.text
    return answer.json()


def rewrite(folder: Path, topic: str, text: str) -> None:
    """Store a definition that this version would not accept, as another one may have."""
    with closing(sqlite3.connect(folder / DATABASE)) as database, database:
        found = database.execute(
            "UPDATE topics SET document = ? WHERE name = ?", (text.encode(), topic)
        )
        assert found.rowcount == 1


def spoil(folder: Path, topic: str) -> None:
    """Damage what the journal has of a topic."""
    with closing(sqlite3.connect(folder / DATABASE)) as database, database:
        found = database.execute(
            "UPDATE journal SET items = x'c1' WHERE topic = (SELECT id FROM topics WHERE name = ?)",
            (topic,),
        )
        assert found.rowcount > 0


def records(http: httpx2.Client, topic: str) -> list[Any]:
    answer = http.get(f"/v1/topics/{topic}/sow")
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@rule("topic-13")
def test_a_definition_that_no_start_could_read_is_refused_everywhere(tmp_path: Path) -> None:
    store = {"data": str(tmp_path / "store")}
    with gateway(**store) as http:
        for change in ({"expiration": TOO_LONG}, {"history": {"age": TOO_LONG}}):
            refused = put(http, "px", 400, key=["/k"], **change)
            assert refused["code"] == "topic-invalid"
        put(http, "px", key=["/k"], expiration="36500d")
        patched = http.patch("/v1/topics/px", json={"expiration": TOO_LONG})
        assert (patched.status_code, patched.json()["pointer"]) == (400, "/expiration")
    with gateway(**store) as http:
        assert http.get("/v1/topics/px").json()["expiration"] == "36500d"
    topics = tmp_path / "topics"
    topics.mkdir()
    (topics / "x.toml").write_text(f'[topics.x]\nkey = ["/k"]\nexpiration = "{TOO_LONG}"')
    for words in (("--dry-run",), ("--port", "0")):
        refused = call("serve", "--topics", str(topics), "--data", store["data"], *words)
        assert (refused.code, refused.err.count("\n")) == (78, 1)
        assert "topic x, field expiration" in refused.err


@rule("topic-14", "topic-15")
def test_a_definition_that_cannot_be_used_costs_its_topic_only(tmp_path: Path) -> None:
    """Data stays where the definition that mends it fits."""
    store = {"data": str(tmp_path)}
    with gateway(**store) as http:
        for topic in ("good", "long", "garbage", "empty"):
            put(http, topic, key=["/k"])
        for topic in ("good", "long", "garbage"):
            publish(http, topic, {"k": 1})
    unread = {
        "long": '{"key":["/k"],"expiration":"699999999999999999993d"}',
        "garbage": "no JSON \x00",
        "empty": '{"key":["/k"],"of-another-version":1}',
    }
    for topic, text in unread.items():
        rewrite(tmp_path, topic, text)
    with gateway(**store) as http:
        assert publish(http, "good", {"k": 2})["first"].endswith("-2")
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        unusable = {each["topic"]: each for each in ready.json()["topics"]}
        assert unusable.keys() == unread.keys()
        assert "(field expiration)" in unusable["long"]["reason"]
        listed = {each["topic"]: each for each in http.get("/v1/topics").json()["topics"]}
        assert listed["good"]["state"] == "served"
        for topic, fault in unusable.items():
            shown = http.get(f"/v1/topics/{topic}")
            assert shown.status_code == 200
            assert shown.json() == listed[topic]
            assert (shown.json()["state"], shown.json()["reason"]) == ("unusable", fault["reason"])
        for answer in (
            http.post("/v1/topics/long/messages", json={"k": 9}),
            http.get("/v1/topics/long/messages"),
            http.get("/v1/topics/long/sow"),
            http.get("/v1/topics/long/subscribe"),
            http.patch("/v1/topics/long", json={"description": "x"}),
            http.put("/v1/topics/new", json={"source": {"topic": "long", "interval": "1s"}}),
            http.post("/v1/sessions", json={"subscriptions": [{"topic": "long"}]}),
            http.post("/v1/explain", json={"topic": "long"}),
            http.get("/v1/lanes?topic=long"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
            assert unusable["long"]["reason"] in answer.json()["detail"]
        new = http.put("/v1/topics/long", json={}, headers={"If-None-Match": "*"})
        assert (new.status_code, new.json()["code"]) == (412, "precondition-failed")

        assert put(http, "long", 409, key=["/other"])["code"] == "topic-conflict"
        put(http, "long", 200, key=["/k"], expiration="1d")
        assert records(http, "long") == [{"k": 1}]
        assert put(http, "garbage", 409, key=["/k"])["code"] == "topic-conflict"
        assert http.delete("/v1/topics/garbage").status_code == 204
        assert put(http, "garbage", key=["/k"])["journal"]["last"] is None
        put(http, "empty", 200, key=["/other"])
        assert http.get("/readyz").json() == {"status": "ready"}
    with gateway(**store) as http:
        assert records(http, "long") == [{"k": 1}]
        assert http.get("/readyz").json() == {"status": "ready"}


@rule("topic-14")
def test_messages_that_cannot_be_read_cost_their_topic_only(tmp_path: Path) -> None:
    store = {"data": str(tmp_path)}
    with gateway(**store) as http:
        for topic in ("good", "spoilt"):
            put(http, topic)
            publish(http, topic, 1)
    spoil(tmp_path, "spoilt")
    with gateway(**store) as http:
        publish(http, "good", 2)
        assert publish(http, "spoilt", 2, 503)["code"] == "not-ready"
        assert put(http, "spoilt", 503, description="x")["code"] == "not-ready"
        assert [it["topic"] for it in http.get("/readyz").json()["topics"]] == ["spoilt"]
        assert http.delete("/v1/topics/spoilt").status_code == 204
        publish(http, "spoilt", 1)
        assert http.get("/readyz").json() == {"status": "ready"}


@rule("topic-16")
@pytest.mark.parametrize("own", ["tidegate.sessions", "tidegate.pipelines"])
def test_what_is_filled_from_the_gateways_own_topics_is_filled_again(
    tmp_path: Path, own: str
) -> None:
    store = {"data": str(tmp_path / "store")}
    with gateway(**store) as http:
        put(http, "by.hand", source={"topic": own, "interval": "100ms"})
    topics = tmp_path / "topics"
    topics.mkdir()
    declared = f'[topics.declared]\nsource = {{topic = "{own}", interval = "100ms"}}'
    (topics / "x.toml").write_text(declared)
    tried = call("serve", "--topics", str(topics), "--data", store["data"], "--dry-run")
    assert (tried.code, tried.out) == (0, "create declared\n")
    for _ in range(2):
        with gateway(topics=str(topics), **store) as http:
            assert http.get("/readyz").json() == {"status": "ready"}
            for topic in ("by.hand", "declared"):
                assert http.get(f"/v1/topics/{topic}").json()["state"] == "served"


@rule("topic-16")
def test_what_is_filled_from_an_unusable_topic_keeps_what_it_has(tmp_path: Path) -> None:
    store = {"data": str(tmp_path)}
    with gateway(**store) as http:
        put(http, "px", key=["/k"])
        put(http, "slow", source={"topic": "px", "interval": "100ms"})
        with http.stream("GET", "/v1/topics/slow/subscribe") as stream:
            publish(http, "px", {"k": 1})
            assert any('{"k":1}' in line for line in stream.iter_lines())
    rewrite(tmp_path, "px", '{"key":["/k"],"merge":"no:such"}')
    with gateway(**store) as http:
        assert records(http, "slow") == [{"k": 1}]
        shown = http.get("/v1/topics/slow").json()
        assert (shown["state"], shown["reason"]) == ("unfilled", "its source px is not served here")
        assert [it["state"] for it in http.get("/readyz").json()["topics"]] == [
            "unusable",
            "unfilled",
        ]
        put(http, "px", 200, key=["/k"])
        with http.stream("GET", "/v1/topics/slow/subscribe") as stream:
            publish(http, "px", {"k": 2})
            assert any('{"k":2}' in line for line in stream.iter_lines())
        assert http.get("/readyz").json() == {"status": "ready"}


@rule("topic-15")
@pytest.mark.redis
def test_a_topic_that_another_gateway_cannot_use_is_not_replaced_there(
    redis_bus: BusServer,
) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": next(PREFIXES)}
    with gateway(mergers=[MERGER], **shared) as a, gateway(**shared) as b:
        put(a, "m", key=["/k"], merge=MERGER)
        for k in range(3):
            publish(a, "m", {"k": k})
        shown = a.get("/v1/topics/m")
        for _ in range(2):
            refused = publish(b, "m", {"k": 99}, 503)
            assert refused["code"] == "not-ready"
        there = b.get("/v1/topics/m")
        assert (there.status_code, there.json()["state"]) == (200, "unusable")
        assert there.headers["etag"] == shown.headers["etag"]
        assert there.json()["merge"] == MERGER
        assert [it["topic"] for it in b.get("/readyz").json()["topics"]] == ["m"]
        assert a.get("/readyz").json() == {"status": "ready"}
        assert put(b, "new", 503, source={"topic": "m", "interval": "1s"})["code"] == "not-ready"
        new = b.put("/v1/topics/m", json={}, headers={"If-None-Match": "*"})
        assert new.status_code == 412
        assert put(b, "m", 409, key=[])["code"] == "topic-conflict"
        assert records(a, "m") == [{"k": 0}, {"k": 1}, {"k": 2}]
        assert a.get("/v1/topics/m").json()["epoch"] == shown.json()["epoch"]

        put(b, "m", 200, key=["/k"])
        assert records(b, "m") == [{"k": 0}, {"k": 1}, {"k": 2}]
        publish(b, "m", {"k": 3})
        assert b.get("/readyz").json() == {"status": "ready"}


@rule("topic-14", "topic-15")
@pytest.mark.redis
def test_what_becomes_unusable_ends_its_subscriptions_and_not_as_if_it_were_gone(
    redis_bus: BusServer,
) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": next(PREFIXES)}
    with gateway(mergers=[MERGER], **shared) as a, gateway(**shared) as b:
        put(a, "m", key=["/k"])
        publish(a, "m", {"k": 1})
        assert b.get("/v1/topics/m").json()["state"] == "served"
        with b.stream("GET", "/v1/topics/m/subscribe") as stream:
            lines = stream.iter_lines()
            assert any('{"k":1}' in line for line in lines)
            put(a, "m", 200, key=["/k"], merge=MERGER)
            assert any('"reason":"UNUSABLE"' in line for line in lines)
        last = a.get("/v1/topics/m").json()["journal"]["last"]
        again = b.get("/v1/topics/m/subscribe", headers={"Last-Event-ID": last})
        assert again.status_code == 200
        assert "retry:" in again.text
        assert '"code":"not-ready"' in again.text
        put(a, "m", 200, key=["/k"])
        with b.stream("GET", "/v1/topics/m/subscribe") as stream:
            lines = stream.iter_lines()
            assert any('{"k":1}' in line for line in lines)
            assert a.delete("/v1/topics/m").status_code == 204
            assert any('"reason":"REMOVED"' in line for line in lines)  # it has heard of it
        assert b.get("/v1/topics/m").status_code == 404


@rule("topic-15")
@pytest.mark.redis
def test_a_gateway_that_cannot_use_a_topic_can_delete_it(redis_bus: BusServer) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": next(PREFIXES)}
    with gateway(mergers=[MERGER], **shared) as a:
        put(a, "m", key=["/k"], merge=MERGER)
        publish(a, "m", {"k": 1})
        with gateway(**shared) as b:
            assert b.get("/v1/topics/m").json()["state"] == "unusable"
            assert b.delete("/v1/topics/m").status_code == 204
            assert b.get("/v1/topics/m").status_code == 404
            publish(b, "m", {"k": 2})
            assert a.get("/v1/topics/m").json()["key"] == []
