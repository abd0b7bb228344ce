"""Limits over HTTP: what is refused, the answer, and that other subjects are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import NDJSON, Running, eventually, running_gateway
from tests.support.rules import rule
from tests.support.tokens import public_jwk, token_of, write_keys
from tests.support.wire import Wire, connected, exchange, request
from tidegate.app.access.limits.memory import MEASURE_EVERY_NS
from tidegate.keys.text.duration import SECOND

ROOT = token_of("root", "read,write,admin,observe >")
ANN = token_of("ann", "read,write,admin >")
BOB = token_of("bob", "read,write >")
TRADER = token_of("tom", "read,write >", groups=["traders"])

POLICY = """
claim = "groups"
[limits.traders]
sessions = 3
"""


@contextlib.asynccontextmanager
async def guarded(folder: Path, **more: Any) -> AsyncIterator[Running]:
    keys = write_keys(folder / "keys.json", public_jwk("HS256"))
    (folder / "policy.toml").write_text(POLICY)
    policy = str(folder / "policy.toml")
    async with running_gateway(auth_keys=keys, auth_policy=policy, **more) as running:
        body = {"key": ["/k"]}
        answer = await running.http.put("/v1/topics/px", json=body, headers=ROOT)
        assert answer.status_code == 201, answer.text
        yield running


async def opened(running: Running, headers: Any, *options: str) -> Any:
    subscriptions = [{"topic": "px", "options": each} for each in options]
    body = {"subscriptions": subscriptions}
    return await running.http.post("/v1/sessions", json=body, headers=headers)


ROWS = b"\n".join(b'{"k":%d,"s":"abcdefghij"}' % n for n in range(20))
REST = ROWS[1:]


@contextlib.asynccontextmanager
async def begun_publish(running: Running) -> AsyncIterator[Wire]:
    """A request to publish of which the gateway has the header and the first byte."""
    async with connected(running.address) as wire:
        lines = [f"{name}: {value}" for name, value in {**ANN, **NDJSON}.items()]
        head = "\r\n".join(
            ["POST /v1/topics/px/messages HTTP/1.1", "Host: localhost", *lines,
             f"Content-Length: {len(ROWS)}", "", ""]
        )  # fmt: skip
        await wire.send(head.encode() + ROWS[:1])
        await asyncio.sleep(0.05)
        yield wire


def refusal(answer: Any) -> str:
    """The setting that a 429 names."""
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "limit-reached"), answer.text
    assert int(answer.headers["Retry-After"]) > 0
    return str(problem["detail"].rpartition("(")[2].removesuffix(")."))


@rule("access-13")
async def test_sessions_of_a_subject_are_limited_by_settings_or_policy(tmp_path: Path) -> None:
    async with guarded(tmp_path, subject_sessions_max=2) as running:
        made = [(await opened(running, ANN)).json()["session"] for _ in range(2)]
        assert refusal(await opened(running, ANN)) == "subject_sessions_max"
        assert (await opened(running, BOB)).status_code == 201
        assert [(await opened(running, TRADER)).status_code for _ in range(3)] == [201] * 3
        assert refusal(await opened(running, TRADER)) == "subject_sessions_max"
        # What ends makes room, and what is refused takes none.
        await running.http.delete(f"/v1/sessions/{made[0]}", headers=ANN)
        assert (await opened(running, ANN)).status_code == 201
        assert refusal(await opened(running, ANN)) == "subject_sessions_max"


async def test_a_stream_is_refused_by_an_event_as_a_browser_never_retries(tmp_path: Path) -> None:
    async with guarded(tmp_path, subject_sessions_max=1) as running:
        assert (await opened(running, ANN)).status_code == 201
        answer = await running.http.get("/v1/topics/px/subscribe", headers=ANN)
        assert answer.status_code == 200
        assert "event: refused" in answer.text
        assert "retry: " in answer.text
        assert "subject_sessions_max" in answer.text


@rule("access-13")
async def test_lanes_are_limited_and_a_refused_change_has_no_effect(tmp_path: Path) -> None:
    async with guarded(tmp_path, subject_lanes_max=2) as running:
        refused = await opened(running, ANN, *(f"conflation={n}s" for n in range(1, 4)))
        assert refusal(refused) == "subject_lanes_max"
        assert not running.gateway.quotas.usage("ann").lane_ids
        session = (await opened(running, ANN, "conflation=1s", "conflation=2s")).json()["session"]
        # A lane that it has already costs nothing more.
        assert (await opened(running, ANN, "conflation=1s")).status_code == 201
        at = f"/v1/sessions/{session}/subscriptions"
        more = {"topic": "px", "options": "conflation=3s"}
        answer = await running.http.post(at, json=more, headers=ANN)
        assert refusal(answer) == "subject_lanes_max"
        change = {"options": "conflation=3s"}
        answer = await running.http.patch(f"{at}/s1", json=change, headers=ANN)
        assert refusal(answer) == "subject_lanes_max"
        answer = await running.http.get(f"{at}/s1", headers=ANN)
        assert "conflation=1s" in json.dumps(answer.json())
        await running.http.delete(f"{at}/s2", headers=ANN)
        answer = await running.http.post(at, json=more, headers=ANN)
        assert answer.status_code == 201, answer.text


@rule("access-13")
async def test_polled_streams_are_charged_to_who_opened_them(tmp_path: Path) -> None:
    async with guarded(tmp_path, subject_lanes_max=2) as running:
        usage = running.gateway.quotas.usage("ann")

        async def polled(headers: Any, seconds: int, live: str = "") -> Any:
            path = f"/v1/topics/px/stream?options=conflation={seconds}s&offset=now{live}"
            return await running.http.get(path, headers=headers)

        waiting = [asyncio.create_task(polled(ANN, n, "&live=long-poll")) for n in (1, 2)]
        await eventually(lambda: running.gateway.polled.positions == 2, "both wait")
        assert refusal(await polled(ANN, 3)) == "subject_lanes_max"
        assert refusal(await opened(running, ANN, "conflation=3s")) == "subject_lanes_max"
        assert (await polled(BOB, 3)).status_code == 200
        assert (await polled(ANN, 3)).status_code == 200  # it is there, and charged to bob
        await asyncio.gather(*waiting)
        # Her own at which nobody waits give way, to sessions of hers as well; bob's stays.
        assert (await polled(ANN, 4)).status_code == 200
        assert (await opened(running, ANN, "conflation=5s")).status_code == 201
        assert (usage.subscriptions, len(usage.lane_ids)) == (2, 2)
        assert running.gateway.quotas.usage("bob").subscriptions == 1
        await running.http.delete("/v1/topics/px", headers=ROOT)
        await eventually(lambda: not usage.subscriptions, "nothing is left")
        assert not running.gateway.quotas.lanes.subscriptions


async def test_everything_is_let_go_when_sessions_and_topics_end(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        for _ in range(3):
            session = (await opened(running, ANN, "conflation=1s", "")).json()["session"]
            async with running.http.stream(
                "GET", f"/v1/sessions/{session}/events", headers=ANN
            ) as stream:
                await anext(stream.aiter_raw())
            await running.http.delete(f"/v1/sessions/{session}", headers=ANN)
        await opened(running, ANN, "conflation=1s")
        answer = await running.http.delete("/v1/topics/px", headers=ROOT)
        assert answer.status_code == 204
        for session in list(running.gateway.sessions.movable()):
            running.gateway.sessions.discard(session)
        usage = running.gateway.quotas.usage("ann")
        assert (usage.sessions, usage.subscriptions, dict(usage.lane_ids)) == (0, 0, {})
        assert running.gateway.quotas.lanes.subscriptions == 0


@rule("access-13")
async def test_publishing_has_rates_topics_a_number_and_journals_a_bound(tmp_path: Path) -> None:
    more = {"subject_publish_messages_max": 5, "subject_topics_max": 1}
    async with guarded(tmp_path, **more, subject_journal_reads_max=1) as running:

        async def publish(headers: Any, count: int) -> Any:
            lines = "\n".join(f'{{"k":{n}}}' for n in range(count))
            return await running.http.post(
                "/v1/topics/px/messages", content=lines, headers={**NDJSON, **headers}
            )

        assert (await publish(ANN, 50)).status_code == 200
        assert refusal(await publish(ANN, 1)) == "subject_publish_messages_max"
        assert (await publish(BOB, 1)).status_code == 200
        for name, status in (("one", 201), ("two", 429), ("one", 200), ("px", 200)):
            body = {"key": ["/k"]}
            answer = await running.http.put(f"/v1/topics/{name}", json=body, headers=ANN)
            assert answer.status_code == status, answer.text
        quotas = running.gateway.quotas
        for _ in range(3):  # each lets go of what it holds
            answer = await running.http.get("/v1/topics/px/messages", headers=ROOT)
            assert answer.status_code == 200, answer.text
            assert len(answer.text.splitlines()) == 51
        missing = await running.http.get("/v1/topics/nosuch/messages", headers=ROOT)
        assert missing.status_code == 404
        assert quotas.usage("root").reads == 0
        quotas.usage("root").reads = 1
        answer = await running.http.get("/v1/topics/px/messages", headers=ROOT)
        assert refusal(answer) == "subject_journal_reads_max"


@pytest.mark.parametrize(
    ("setting", "body"),
    [
        ("sessions_max", None),
        ("topics_max", {}),
        ("topic_keys_max", b'{"k":1}\n{"k":2}'),
        ("session_subscriptions_max", {"subscriptions": [{"topic": "px"}, {"topic": "px"}]}),
        ("connections_max", None),
        ("connections_per_address_max", None),
    ],
)
async def test_a_refusal_names_the_limit_of_all_that_is_reached(setting: str, body: Any) -> None:
    async with running_gateway(**{setting: 1}) as running:
        await running.topic()
        match setting:
            case "topics_max":
                answer = await running.http.put("/v1/topics/py", json=body)
            case "topic_keys_max":
                target = "/v1/topics/px/messages"
                answer = await running.http.post(target, content=body, headers=NDJSON)
            case "session_subscriptions_max":
                answer = await running.http.post("/v1/sessions", json=body)
            case "sessions_max":
                await running.http.post("/v1/sessions")
                answer = await running.http.post("/v1/sessions")
            case _:
                raw = await exchange(running.address, request("/v1/topics"))
                assert (raw.status, raw.code) == (429, "limit-reached")
                assert raw.problem["detail"].endswith(f"({setting}).")
                return
        assert refusal(answer) == setting


@rule("access-13")
async def test_requests_side_by_side_do_not_pass_a_rate_together(tmp_path: Path) -> None:
    """Each found something left when it began; no more than one may go into debt."""
    async with guarded(tmp_path, subject_publish_messages_max=5) as running:
        async with contextlib.AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(begun_publish(running)) for _ in range(4)]
            statuses = []
            for wire in wires:
                await wire.send(REST)
                statuses.append((await wire.read_answer()).status)
        assert statuses == [200, 429, 429, 429]
        rows = (await running.http.get("/v1/topics/px/messages", headers=ROOT)).text
        assert len(rows.splitlines()) == 20


@rule("access-13")
@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_topics_made_side_by_side_do_not_pass_a_number_together(
    tmp_path: Path, method: str
) -> None:
    """Each found room when it began, and the store takes its time."""
    more = {"subject_topics_max": 2, "auto_create_topics": True, "data": str(tmp_path / "store")}
    async with guarded(tmp_path, **more) as running:
        ending = "/messages" if method == "POST" else ""
        paths = [f"/v1/topics/t{number}{ending}" for number in range(6)]
        made = [running.http.request(method, path, json={}, headers=ANN) for path in paths]
        refused = [each for each in await asyncio.gather(*made) if each.status_code >= 400]
        assert [refusal(each) for each in refused] == ["subject_topics_max"] * 4
        usage = running.gateway.quotas.usage("ann")
        assert (len(usage.topics), usage.creating) == (2, 0)


async def test_a_body_that_is_on_its_way_is_refused_once_memory_is_full(tmp_path: Path) -> None:
    """Bodies are memory: a thousand that begin while there is some may be 64 MiB each."""
    async with guarded(tmp_path) as running, begun_publish(running) as wire:
        await wire.send(REST[:100])
        await asyncio.sleep(0.05)  # the route has got this much
        running.gateway.quotas.memory.bytes_max = 1
        await asyncio.sleep(2 * MEASURE_EVERY_NS / SECOND)
        await wire.send(REST[100:])
        answer = await wire.read_answer()
        assert (answer.status, answer.code) == (429, "limit-reached")
        assert "memory_bytes_max" in answer.problem["detail"]
        rows = await running.http.get("/v1/topics/px/messages", headers=ROOT)
        assert not rows.text


async def test_a_journal_that_nobody_reads_counts_until_its_reader_is_gone() -> None:
    async with running_gateway(journal_reads_max=1, write_timeout="500ms") as running:
        await running.topic()
        for _ in range(4):
            await running.publish(*[{"k": n, "pad": "x" * 1_000} for n in range(3_000)])
        target = "/v1/topics/px/messages?limit=100000"
        async with connected(running.address) as wire:
            await wire.send(request(target))
            wire.freeze()
            await eventually(lambda: running.gateway.quotas.usage("").reads == 1, "it is read")
            answer = await running.http.get("/v1/topics/px/messages?limit=1")
            assert refusal(answer) == "journal_reads_max"
            assert answer.headers["Retry-After"] == "1"
            await eventually(lambda: not running.gateway.quotas.usage("").reads, "it was cut")
        assert (await running.http.get("/v1/topics/px/messages?limit=1")).status_code == 200


async def test_memory_that_is_full_refuses_what_takes_more_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as running:
        running.gateway.quotas.memory.bytes_max = 1
        await asyncio.sleep(2 * MEASURE_EVERY_NS / SECOND)
        body = {"key": ["/k"]}
        for answer in (
            await running.http.post("/v1/topics/px/messages", json={"k": 1}, headers=ANN),
            await running.http.put("/v1/topics/py", json=body, headers=ANN),
            await opened(running, ANN),
        ):
            assert refusal(answer) == "memory_bytes_max"
        assert (await running.http.get("/v1/topics/px/sow", headers=ANN)).status_code == 200
        assert (await running.http.delete("/v1/topics/px", headers=ANN)).status_code == 204


ATTACKS = {
    "keys": ("conflation=1s,conflation_key=[/k,/x{n}]", ""),
    "filters": ("conflation=1s", "/s LIKE 'x{n}y'"),
    "receipts": ("conflation={n}001ms,receipt", ""),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ATTACKS)
async def test_a_subject_that_explodes_lanes_makes_nobody_wait(tmp_path: Path, kind: str) -> None:
    alone = await _cpu_of_publishing(tmp_path, kind, 0)
    # The least of three: other work of the machine only adds, by the caches that it takes.
    limited = min(
        [await _cpu_of_publishing(tmp_path, kind, 300, subject_lanes_max=10) for _ in range(3)]
    )
    unlimited = await _cpu_of_publishing(tmp_path, kind, 150, subject_lanes_max=0)
    # What an attack costs without the limit shows that it is one.
    assert unlimited > 3 * alone
    assert limited - alone < (unlimited - alone) / 4


async def _cpu_of_publishing(folder: Path, kind: str, lanes: int, **more: Any) -> float:
    """CPU seconds in which another subject publishes, beside an attack of so many lanes."""
    options, wanted = ATTACKS[kind]
    streams: list[AsyncIterator[bytes]] = []  # one that is let go of closes its connection
    async with guarded(folder, **more) as running, contextlib.AsyncExitStack() as stack:
        for first in range(1, lanes, 10):
            subscriptions = [
                {"topic": "px", "options": options.format(n=n), "filter": wanted.format(n=n)}
                for n in range(first, first + 10)
            ]
            body = {"subscriptions": subscriptions}
            answer = await running.http.post("/v1/sessions", json=body, headers=ANN)
            assert answer.status_code == 201 or refusal(answer) == "subject_lanes_max"
            if answer.status_code == 201:
                events = running.http.stream("GET", answer.json()["events"], headers=ANN)
                streams.append((await stack.enter_async_context(events)).aiter_raw())
                await anext(streams[-1])
        engine = running.gateway.driver.engine
        found = sum(len(feed.lanes) for feed in engine.topic("px").feeds.values())
        assert found == min(lanes, more.get("subject_lanes_max") or lanes)
        began = time.process_time()
        for first in range(0, 600, 10):  # requests of ten, as publishers send that are not in bulk
            lines = "\n".join(f'{{"k":{n % 500},"s":"abc"}}' for n in range(first, first + 10))
            answer = await running.http.post(
                "/v1/topics/px/messages", content=lines, headers={**NDJSON, **BOB}
            )
            assert answer.status_code == 200, answer.text
        return time.process_time() - began
