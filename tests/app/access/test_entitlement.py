"""Hidden rows and fields are never sent, and requests that could reveal them are refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.app.access.test_authorization import ROOT, guarded
from tests.support.gateways import Running, Stream
from tests.support.rules import rule
from tests.support.tokens import grant, token_of
from tidegate.app.access.entitlement import both, entitlement_of
from tidegate.app.access.grants import Grant, Grants
from tidegate.app.refusals import Refused
from tidegate.conflation.definition import Definition, History
from tidegate.keys.merging import Merger
from tidegate.keys.path import FieldPath
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec

ROWS = token_of("fay", grant("read prices.>", filter="/desk = 'a'"))
FIELDS = token_of("liz", grant("read prices.>", select="[-/,+/k,+/px,+/nested/x]"))
BOTH = token_of("bo", grant("read prices.>", filter="/desk = 'a'", select="[-/,+/k,+/px]"))
AT = "/v1/topics/prices.eu"

SEEN = {"k": "one", "px": 1, "desk": "a", "secret": "fieldcanary"}
HIDDEN = {"k": "rowcanary", "px": 2, "desk": "b", "secret": "fieldcanary"}


async def publish(running: Running, *messages: dict[str, Any]) -> None:
    lines = "\n".join(map(json.dumps, messages))
    headers = {**ROOT, "Content-Type": "application/x-ndjson"}
    answer = await running.http.post(f"{AT}/messages", content=lines, headers=headers)
    assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def narrowed_gateway(folder: Path, **more: Any) -> AsyncIterator[Running]:
    async with guarded(folder, **more) as running:
        await running.http.delete(f"{AT}/sow?filter=TRUE", headers=ROOT)
        await publish(running, SEEN, HIDDEN)
        yield running


def subscribing(options: str = "", **more: str) -> str:
    query = "&".join(f"{name}={quote(text)}" for name, text in {"options": options, **more}.items())
    return f"{AT}/subscribe?{query}"


async def refused(running: Running, path: str, headers: dict[str, str]) -> str:
    """The code of a refusal, or nothing; a stream is not read."""
    async with running.http.stream("GET", path, headers=headers) as answer:
        if answer.is_success:
            return ""
        await answer.aread()
        return str(answer.json()["code"])


def leaks(raw: bytes, headers: dict[str, str]) -> list[bytes]:
    """What of the hidden is in some bytes."""
    rows = [] if headers is FIELDS else [b"rowcanary"]
    fields = [] if headers is ROWS else [b"fieldcanary", b"secret"]
    # A subject may see its own filter, which the lane's text has, and no value of that field.
    values = [] if headers is ROWS else [b'"desk"']
    return [each for each in (*rows, *fields, *values) if each in raw]


WAYS = {
    "every-message": subscribing(),
    "envelopes": subscribing(format="envelope"),
    "batches": subscribing("conflation=50ms", format="batch"),
    "interval": subscribing("conflation=50ms"),
    "interval-by-key": subscribing("conflation=50ms,pace=key,receipt,timestamp,send_keys"),
    "leading": subscribing("conflation=50ms,edge=leading"),
    "automatic": subscribing("conflation=auto"),
    "removals": subscribing("conflation=50ms,oof", format="envelope"),
    "deltas": subscribing("conflation=50ms", command="sow_and_delta_subscribe"),
    "deltas-of-every-message": subscribing("no_empties", command="sow_and_delta_subscribe"),
    "window": subscribing("conflation=50ms,top_n=5", order_by="/px"),
    "own-select": subscribing("conflation=50ms,select=[+/secret,+/desk]"),
    "own-filter": subscribing("conflation=50ms", filter="/px >= 0 OR TRUE"),
    "replay": subscribing("bookmark=epoch"),
    "conflated-replay": subscribing("bookmark=epoch,conflation=50ms"),
    "query": subscribing(command="sow"),
    "pattern": f"/v1/topics/prices.%3E/subscribe?options={quote('conflation=50ms,oof')}",
}


@rule("access-10")
@pytest.mark.parametrize("way", WAYS)
async def test_hidden_rows_and_fields_are_in_no_stream(tmp_path: Path, way: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(narrowed_gateway(tmp_path))
        streams = []
        for headers in (ROWS, FIELDS, BOTH):
            opening = running.http.stream("GET", WAYS[way], headers=headers)
            answer = await stack.enter_async_context(opening)
            assert answer.status_code == 200, await answer.aread()
            streams.append((headers, Stream(answer)))
        if way != "query":
            for _, stream in streams:
                await stream.next()
            await publish(running, {**SEEN, "px": 3}, {**HIDDEN, "px": 4})
            await publish(running, {**SEEN, "k": "two"}, {**HIDDEN, "k": "rowcanary2"})
            await asyncio.sleep(0.2)
            # A row goes out of sight, and another one comes into it.
            await publish(running, {**SEEN, "k": "two", "desk": "b", "px": "rowcanary"})
            await publish(running, {**HIDDEN, "k": "three", "desk": "a"})
            await asyncio.sleep(0.2)
            await publish(running, {**SEEN, "k": "last"})
        for headers, stream in streams:
            if way == "query":
                await stream.rest()
            else:
                await stream.raw_until(b"last")
            assert b"one" in stream.raw
            assert leaks(bytes(stream.raw), headers) == []
            # The test sees what there is to see.
            assert (b"rowcanary" in stream.raw) is (headers is FIELDS)
            assert (b"fieldcanary" in stream.raw) is (headers is ROWS)


@rule("access-10")
@pytest.mark.parametrize("headers", [ROWS, FIELDS, BOTH], ids=["rows", "fields", "both"])
async def test_hidden_rows_and_fields_are_in_no_answer(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with narrowed_gateway(tmp_path) as running:
        now = "2099-01-01T00:00:00Z"
        for path in (
            "/sow",
            "/sow?format=envelope",
            "/sow?select=[%2B/secret]",
            "/sow?order_by=/k",
            "/sow?top_n=5",
            "/sow?filter=TRUE",
            f"/sow?as_of={now}",
            '/sow/["one"]',
            '/sow/["one"]?format=envelope',
        ):
            answer = await running.http.get(AT + path, headers=headers)
            if path.startswith("/sow?as_of") and answer.status_code != 200:
                continue
            assert answer.status_code == 200, (path, answer.text)
            assert "one" in answer.text
            assert leaks(answer.content, headers) == [], path
        hidden = await running.http.get(f'{AT}/sow/["rowcanary"]', headers=headers)
        missing = await running.http.get(f'{AT}/sow/["nosuch"]', headers=headers)
        if headers is not FIELDS:
            assert hidden.text == missing.text
            assert hidden.status_code == 404
        # What counts or shows everything needs everything.
        for method, path in (("GET", ""), ("GET", "/messages"), ("DELETE", "/sow?filter=TRUE")):
            answer = await running.http.request(method, AT + path, headers=headers)
            assert answer.status_code == 403, path
            assert leaks(answer.content, headers) == []
        listed = await running.http.get("/v1/topics", headers=headers)
        assert listed.json()["topics"] == []


@rule("access-10")
async def test_a_resume_shows_no_more_than_the_stream(tmp_path: Path) -> None:
    async with narrowed_gateway(tmp_path) as running:
        for options in ("conflation=50ms,oof", "conflation=50ms", ""):
            at = subscribing(options, format="envelope")
            async with running.http.stream("GET", at, headers=BOTH) as answer:
                stream = Stream(answer)
                await stream.until("group_end")
                last = stream.last_id
            await publish(running, {**HIDDEN, "px": 5}, {**SEEN, "px": 6}, {**SEEN, "k": "end"})
            headers = {**BOTH, "Last-Event-ID": last}
            async with running.http.stream("GET", at, headers=headers) as answer:
                stream = Stream(answer)
                await stream.raw_until(b"end")
                assert leaks(bytes(stream.raw), BOTH) == []


REVEALING = [
    subscribing(filter="/secret LIKE 'f'"),
    subscribing(filter="/px > 0 AND /desk = 'a'"),
    subscribing(order_by="/secret"),
    subscribing("conflation=50ms,top_n=1", order_by="/secret DESC"),
    subscribing("conflation=50ms,never=[/secret = 'x']"),
    subscribing("conflation=50ms,flush_on=[/secret = 'x']"),
    subscribing("conflation=50ms,conflation_key=[/secret]"),
    subscribing("conflation=50ms,reduce=[/secret:max@px]"),
    subscribing("projection=[COUNT(/secret) AS /k],grouping=[/desk]"),
    f"{AT}/sow?filter=/secret%20IS%20NULL",
    f"{AT}/sow?order_by=/secret",
]


@rule("access-11")
async def test_no_hidden_field_decides_what_comes(tmp_path: Path) -> None:
    async with narrowed_gateway(tmp_path) as running:
        for way in REVEALING:
            assert await refused(running, way, FIELDS) == "forbidden", way
            assert await refused(running, way, ROOT) == "", way


@rule("access-11")
async def test_what_cannot_be_narrowed_is_refused(tmp_path: Path) -> None:
    async with narrowed_gateway(tmp_path) as running:
        # With every message a removal has the record that is out of sight.
        assert await refused(running, subscribing("oof"), ROWS) == "forbidden"
        for name, definition in (
            ("prices.text", {"type": "text"}),
            ("prices.list", {}),
            ("prices.hidden", {"key": ["/secret"]}),
        ):
            body = {"key": [], **definition}
            await running.http.put(f"/v1/topics/{name}", json=body, headers=ROOT)
            at = f"/v1/topics/{name}/subscribe"
            assert await refused(running, at, FIELDS) == "forbidden"
        at = "/v1/topics/prices.text/subscribe"
        assert await refused(running, at, ROWS) == "forbidden"


@rule("access-10")
async def test_a_change_stays_within_what_is_granted(tmp_path: Path) -> None:
    async with narrowed_gateway(tmp_path) as running:
        body = {"subscriptions": [{"topic": "prices.eu", "options": "conflation=50ms,oof"}]}
        opened = await running.http.post("/v1/sessions", json=body, headers=BOTH)
        at = opened.headers["location"]
        async with running.http.stream("GET", at + "/events", headers=BOTH) as answer:
            stream = Stream(answer)
            await stream.until("group_end")

            async def change(**more: str) -> int:
                path = f"{at}/subscriptions/s1"
                return (await running.http.patch(path, json=more, headers=BOTH)).status_code

            assert (
                await change(filter="TRUE", options="conflation=60ms,oof,select=[+/secret]") == 200
            )
            assert await change(filter="/secret = 'x'") == 403
            assert await change(conflation="none") == 403
            await publish(running, {**HIDDEN, "px": 8}, {**SEEN, "k": "end"})
            await stream.raw_until(b"end")
            assert leaks(bytes(stream.raw), BOTH) == []


@rule("access-10")
async def test_subjects_of_equal_entitlement_share_a_lane_and_others_do_not(
    tmp_path: Path,
) -> None:
    async with narrowed_gateway(tmp_path) as running:
        twin = token_of("fred", grant("read >", filter="/desk='a'"))
        at = subscribing("conflation=50ms")
        opened: list[Stream] = []  # held, or the connection would be closed
        async with contextlib.AsyncExitStack() as streams:
            for headers in (ROWS, twin, FIELDS, BOTH, ROOT):
                opening = running.http.stream("GET", at, headers=headers)
                answer = await streams.enter_async_context(opening)
                opened.append(Stream(answer))
                await opened[-1].until("group_end")
            lanes = (await running.http.get("/v1/lanes", headers=ROOT)).json()["lanes"]
            assert sorted(lane["subscriptions"] for lane in lanes) == [1, 1, 1, 2]


async def test_an_explanation_shows_what_is_granted(tmp_path: Path) -> None:
    async with narrowed_gateway(tmp_path) as running:
        asked = {"topic": "prices.eu", "filter": "/px > 0"}
        answer = await running.http.post("/v1/explain", json=asked, headers=ROWS)
        assert answer.json()["filter"] == "/desk = 'a' AND /px > 0"
        asked = {"topic": "prices.eu", "filter": "/secret = 'x'"}
        answer = await running.http.post("/v1/explain", json=asked, headers=FIELDS)
        assert answer.status_code == 403


@pytest.mark.parametrize(
    ("granted", "asked", "found"),
    [
        ("[-/,+/a,+/b]", "[-/a]", '{"b":2}'),
        ("[-/,+/a,+/b]", "[-/,+/c,+/b]", '{"b":2}'),
        ("[-/,+/a,+/c/d]", "[-/c/e]", '{"a":1,"c":{"d":3}}'),
        ("[-/,+/c/d]", "[-/,+/c]", '{"c":{"d":3}}'),
        ("[-/,+/c]", "[-/c/d]", '{"c":{"e":4}}'),
        ("[-/,+/a]", "[+/c]", '{"a":1}'),
        ("[-/,+/a]", "[-/]", "{}"),
    ],
)
def test_a_selection_within_another(granted: str, asked: str, found: str) -> None:
    payload = b'{"a":1,"b":2,"c":{"d":3,"e":4}}'
    select = both(Select.parse(granted), Select.parse(asked))
    assert select.apply(payload).decode() == found
    # Both, one after the other, in any order.
    for first, second in ((granted, asked), (asked, granted)):
        twice = Select.parse(second).apply(Select.parse(first).apply(payload))
        assert json.loads(twice) == json.loads(found)


@pytest.mark.parametrize(
    ("path", "is_kept"),
    [("/a", True), ("/a/b", True), ("/a/0/b", True), ("/c", False), ("/c/d", True), ("/x", False)],
)
def test_a_field_is_kept_whole_or_not(path: str, is_kept: bool) -> None:
    assert Select.parse("[-/,+/a,+/c/d]").keeps(FieldPath.parse(path)) is is_kept
    assert not Select.parse("[-/,+/a,-/a/b]").keeps(FieldPath.parse("/a"))


MERGES: list[tuple[Any, int]] = [
    ({"/secret": "max@px"}, 403),
    ({"/desk": "last@k"}, 400),  # no topic may write its own key
    ({"/px": "max@secret", "/desk": "union"}, 200),
    ({"/px": "max@hi", "/qty": "sum"}, 200),
    ({"/secret": "last@nested"}, 403),  # only a part of it is granted
]


@rule("access-11")
@pytest.mark.parametrize(("merge", "status"), MERGES)
async def test_the_merge_of_a_topic_carries_no_hidden_field(
    tmp_path: Path, merge: dict[str, str], status: int
) -> None:
    async with narrowed_gateway(tmp_path) as running:
        put = await running.http.put(AT, json={"key": ["/k"], "merge": merge}, headers=ROOT)
        if status == 400:
            assert put.status_code == 400
            return
        assert put.status_code == 200, put.text
        asked = "" if status == 200 else "forbidden"
        # Every message, too: a full queue is merged as the topic says.
        for options in ("conflation=50ms", "conflation=none"):
            path = subscribing(options, command="subscribe")
            assert await refused(running, path, FIELDS) == asked
            assert await refused(running, path, ROWS) == ""
        assert (await running.http.get(f"{AT}/sow", headers=FIELDS)).status_code == status
        if status == 200:
            path = subscribing("conflation=50ms", command="subscribe")
            async with running.http.stream("GET", path, headers=FIELDS) as answer:
                stream = Stream(answer)
                await stream.next()
                await publish(running, SEEN, {**SEEN, "secret": "fieldcanary2"})
                await stream.raw_until(b"one")
                assert leaks(bytes(stream.raw), FIELDS) == []


@rule("access-9")
async def test_a_merge_that_comes_later_ends_the_streams_it_would_tell(tmp_path: Path) -> None:
    async with narrowed_gateway(tmp_path) as running:
        path = subscribing(command="subscribe")
        async with (
            running.http.stream("GET", path, headers=FIELDS) as one,
            running.http.stream("GET", path, headers=ROWS) as two,
        ):
            fields, rows = Stream(one), Stream(two)
            for stream in (fields, rows):
                await stream.next()
            # Without an interval, a topic that always conflates merges in the queue.
            body = {"conflation": "always", "merge": {"/secret": "max@px"}}
            changed = await running.http.patch(AT, json=body, headers=ROOT)
            assert changed.status_code == 200, changed.text
            await publish(running, SEEN, {**SEEN, "secret": "fieldcanary2"})
            assert "REVOKED" in (await fields.rest())[-1].text
            assert leaks(bytes(fields.raw), FIELDS) == []
            await rows.raw_until(b"fieldcanary")


def test_a_registered_merger_sees_everything_and_may_tell_it() -> None:
    grants = Grants((Grant.parse(grant("read px", select="[-/,+/k]")),))
    key = KeySpec((FieldPath.parse("/k"),))
    merger = Merger("m:f", lambda current, new: new)
    with pytest.raises(Refused, match="merges whole messages"):
        entitlement_of(grants, Definition(History(1), key, merge=merger), "px")
    assert entitlement_of(grants, Definition(History(1), key), "px") is not None
