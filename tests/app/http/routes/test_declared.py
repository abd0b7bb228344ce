"""What a running gateway answers is what /openapi.json says of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest
from jsonschema_rs import Draft202012Validator

from tests.support.gateways import Running, Stream, running_gateway
from tidegate.clients.sse import Event

# The steps below name every operation of the document at least once.
NDJSON = {"Content-Type": "application/x-ndjson"}
TRACE = "/v1/sessions/{session}/subscriptions/{sub}/trace"
BYTES = {"type": "string", "format": "binary"}
STAGE = {"Tidegate-Stage": "a", "Tidegate-Producer": "p"}


class Declared:
    """The document of a running gateway, against which its answers are held."""

    def __init__(self, running: Running, document: dict[str, Any]) -> None:
        self.running = running
        self.document = closed(document)
        self.seen: set[tuple[str, str]] = set()

    async def asked(self, method: str, path: str, status: int, **more: Any) -> httpx2.Response:
        """One request, whose answer has this status and is as declared."""
        answer = await self.running.http.request(method, path, **more)
        assert answer.status_code == status, answer.text
        self.check(method, answer)
        return answer

    def tagged(self, *tags: str) -> set[tuple[str, str]]:
        """Every operation that has one of the tags."""
        return {
            (method.upper(), path)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if operation["tags"][0] in tags
        }

    def operation(self, method: str, path: str) -> dict[str, Any]:
        """The most literal of the paths that fit."""
        fitting = [template for template in self.document["paths"] if fits(template, path)]
        template = min(fitting, key=lambda each: each.count("{"))
        self.seen.add((method, template))
        operation: dict[str, Any] = self.document["paths"][template][method.lower()]
        return operation

    def check(self, method: str, answer: httpx2.Response) -> None:
        """Status, headers and body."""
        responses = self.operation(method, answer.url.path)["responses"]
        response = responses[str(answer.status_code)]
        for name, header in response.get("headers", {}).items():
            assert name in answer.headers or not header["required"], name
        content = response.get("content", {})
        if not content:
            assert answer.content == b""
            return
        declared = (
            content[answer.headers["Content-Type"].split(";")[0]]
            if (answer.headers["Content-Type"] not in content)
            else content[answer.headers["Content-Type"]]
        )
        if "itemSchema" in declared:
            for line in answer.text.splitlines():
                self.fit(declared["itemSchema"], json.loads(line))
        elif declared["schema"] not in ({"type": "string"}, BYTES):
            self.fit(declared["schema"], answer.json())

    def event(self, path: str, event: Event) -> None:
        """One server-sent event of a stream at the path."""
        content = self.operation("GET", path)["responses"]["200"]["content"]
        for item in content["text/event-stream"]["itemSchema"]["oneOf"]:
            name = item["properties"].get("event", {}).get("const", "message")
            if name == event.name:
                schema = item["properties"]["data"]["contentSchema"]
                return self.fit(schema, json.loads(event.text))
        raise AssertionError(f"{event.name} is not declared")

    def fit(self, schema: Mapping[str, Any], value: object) -> None:
        """The value is what the schema says, and nothing more."""
        whole = {**schema, "components": self.document["components"]}
        errors = [str(error) for error in Draft202012Validator(whole).iter_errors(value)]
        assert not errors, (errors, value)


def closed(part: Any) -> Any:
    """The document with no room for fields that it does not name."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: closed(value) for name, value in part.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def fits(template: str, path: str) -> bool:
    """Whether a path is one of the template."""
    parts, wanted = path.strip("/").split("/"), template.strip("/").split("/")
    if wanted[-1].endswith(":path}"):
        parts = [*parts[: len(wanted) - 1], "x"]
    return len(parts) == len(wanted) and all(
        want.startswith("{") or want == part for part, want in zip(parts, wanted, strict=True)
    )


@pytest.fixture
async def declared() -> AsyncIterator[Declared]:
    async with running_gateway() as running:
        document = (await running.http.get("/openapi.json")).json()
        yield Declared(running, document)


async def test_topics_and_messages(declared: Declared) -> None:
    ask = declared.asked
    whole = {
        "key": ["/k"], "history": {"messages": 5, "age": "1h"}, "expiration": "1h",
        "schema": {"type": "object"}, "merge": {"/n": "sum"}, "match": ["/k"],
    }  # fmt: skip
    made = await ask("PUT", "/v1/topics/px", 201, json=whole)
    await ask("PUT", "/v1/topics/px", 200, json=whole)
    source = {"topic": "px", "interval": "1s", "grouping": ["/k"], "projection": ["SUM(/n) AS /n"]}
    await ask("PUT", "/v1/topics/view", 201, json={"source": source})
    await ask("PATCH", "/v1/topics/px", 200, json={"description": "d", "expiration": None})
    await ask("PATCH", "/v1/topics/px", 412, json={}, headers={"If-Match": '"other"'})
    await ask("GET", "/v1/topics/px", 200)
    await ask("GET", "/v1/topics/zzq", 404)
    listed = await ask("GET", "/v1/topics?limit=1", 200)
    same = {"If-None-Match": listed.headers["ETag"]}
    await ask("GET", "/v1/topics?limit=1", 304, headers=same)
    await ask("GET", "/v1/topics?limit=0", 400)
    assert made.headers["ETag"]
    messages = "/v1/topics/px/messages"
    await ask("POST", messages, 200, json={"k": 1, "n": 2})
    await ask("POST", messages, 200, content=b'{"k":2}\n{"k":3}', headers=NDJSON)
    numbered = {"Tidegate-Producer": "q", "Tidegate-Sequence": "1"}
    for _ in range(2):
        await ask("POST", messages, 200, json={"k": 4}, headers=numbered)
    removal = {"key": [4], "reason": "deleted"}
    await ask("POST", f"{messages}?format=envelope", 200, json=removal)
    await ask("POST", messages, 201, json={"k": 5}, headers=STAGE)
    commit = {"producer": "p", "run": 1, "sequence": 1, "stages": ["a"]}
    await ask("POST", "/v1/topics/px/commits", 200, json=commit)
    await ask("POST", "/v1/topics/px/commits", 412, json={**commit, "sequence": 2})
    await ask("POST", "/v1/topics/px/commits", 400, json={})
    await ask("POST", messages, 400, content=b"{", headers={"Content-Type": "application/json"})
    await ask("GET", messages, 200)
    await ask("GET", "/v1/topics/px/sow", 200)
    await ask("GET", "/v1/topics/px/sow?format=envelope", 200)
    for accept in ("application/json", "text/csv", "application/vnd.apache.arrow.stream"):
        await ask("GET", "/v1/topics/px/sow", 200, headers={"Accept": accept})
    await ask("GET", "/v1/topics/px/sow", 406, headers={"Accept": "text/html"})
    await ask("GET", "/v1/topics/px/sow/[1]", 200)
    await ask("GET", "/v1/topics/px/sow/[9]", 404)
    await ask("DELETE", "/v1/topics/px/sow?key=[1]", 200)
    await ask("DELETE", "/v1/topics/px", 409)
    await ask("DELETE", "/v1/topics/view", 204)
    for path in ("/healthz", "/readyz", "/metrics"):
        await ask("GET", path, 200)
    health = {("GET", path) for path in ("/healthz", "/readyz", "/metrics")}
    assert declared.seen == declared.tagged("topics", "messages", "state of the world") | health


async def test_sessions_and_streams(declared: Declared) -> None:
    ask, running = declared.asked, declared.running
    for name in ("px", "qx"):
        await running.topic(name)
        await running.publish({"k": 1}, topic=name)
    wanted = [{"topic": "px", "options": "conflation=auto"}, {"topic": "*"}]
    opened = await ask("POST", "/v1/sessions", 201, json={"subscriptions": wanted})
    await ask("POST", "/v1/sessions", 400, json={"limits": {"upper": 101}})
    await ask("POST", "/v1/sessions", 201)
    session = f"/v1/sessions/{opened.json()['session']}"
    await ask("GET", "/v1/sessions?limit=1", 200)
    await ask("PATCH", session, 200, json={"limits": {"messages": 100}, "conflated": None})
    added = await ask("POST", f"{session}/subscriptions", 201, json={"topic": "px"})
    sub = f"{session}/subscriptions/{added.json()['sub']}"
    async with running.http.stream("GET", f"{session}/events") as answer:
        stream = Stream(answer)
        events = [await stream.next() for _ in range(4)]
        await ask("GET", session, 200)
        await ask("GET", f"{session}/subscriptions", 200)
        await ask("GET", f"{session}/subscriptions/s1", 200)
        await ask("GET", f"{session}/subscriptions/s2", 200)
        await ask("GET", f"{session}/subscriptions/s1/auto", 200)
        await ask("GET", "/v1/lanes?topic=px", 200)
        async with running.http.stream("GET", f"{sub}/trace") as traced:
            trace = Stream(traced)
            decisions = [await trace.next()]
            await running.publish({"k": 2})
            await ask("PATCH", sub, 200, json={"options": "conflation=1s"})
            await ask("DELETE", sub, 204)
            decisions += await trace.rest()
        await ask("DELETE", sub, 404)
        await ask("DELETE", session, 204)
        events += await stream.rest()
    for event in events:
        declared.event(f"{session}/events", event)
    for event in decisions:
        declared.event(f"{sub}/trace", event)
    assert {"hello", "unsubscribed", "goodbye"} <= {event.name for event in events}
    assert {"call", "decision", "end"} == {event.name for event in decisions}
    await ask("GET", f"{session}/subscriptions", 404)
    others = {("GET", "/v1/lanes"), ("GET", TRACE)}
    assert declared.seen == declared.tagged("sessions") | others


@pytest.mark.parametrize("form", ["value", "envelope", "batch"])
async def test_rows_and_what_stands_around_them(declared: Declared, form: str) -> None:
    running = declared.running
    await running.topic()
    await running.publish({"k": 1}, {"k": 2})
    options = "conflation=10ms,oof,progress,timestamp,receipt"
    path = "/v1/topics/px/subscribe"
    await declared.asked("GET", f"{path}?options=zzq", 400)
    async with running.subscribe(options, format=form) as stream:
        events = await stream.until("group_end")
        await running.publish({"k": 1, "n": 1})
        events.append(await stream.next())
        await running.http.delete("/v1/topics/px/sow?key=[1]")
        events.append(await stream.next())
        await running.http.delete("/v1/topics/px")
        events += await stream.rest()
    for event in events:
        declared.event(path, event)
    assert "goodbye" in {event.name for event in events}
    assert (await declared.asked("POST", path, 400, json={"zzq": ""})).json()["pointer"] == "/zzq"


async def test_polled_streams(declared: Declared) -> None:
    running = declared.running
    await running.topic()
    await running.publish({"k": 1})
    asked = {"options": "conflation=1s,top_n=3", "order_by": "/k", "filter": "/k > 0"}
    assert (await running.http.get("/v1/topics/px/stream", params=asked)).is_success
    shown = await declared.asked("GET", "/v1/polled", 200)
    assert [each["topic"] for each in shown.json()["streams"]] == ["px"]


async def test_explanations(declared: Declared) -> None:
    ask = declared.asked
    await declared.running.topic()
    await declared.running.publish({"k": 1})
    explain = await ask(
        "POST", "/v1/explain", 200, json={"topic": "px", "options": "conflation=1s"}
    )
    assert explain.json()["topic"] == "px"
    await ask("POST", "/v1/explain", 200, json={"topic": "px", "command": "sow"})
    await ask("POST", "/v1/explain", 400, json={"topic": "px", "options": "zzq"})
