"""Canaries: what one subject has must come out to no other, on whatever way.

`canaryname` is in names of topics, of subjects and in definitions; `canaryrow` in keys;
`canarydata` in values and in names of fields. Every operation is asked by each subject that may not
see them, hostile requests included, while the owner publishes; and the log must have none of the
data, whoever asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Final
from unittest import mock
from urllib.parse import quote

import pytest
import pytest_asyncio
from _pytest.mark import ParameterSet

from tests.hostile.catalogue import KINDS
from tests.hostile.operations import Operation, operations
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, running_gateway
from tests.support.sessions import opened
from tests.support.tokens import grant, public_jwk, token_of, write_keys
from tests.support.wire import Wire, connected
from tidegate.app.access.tokens import SKEW_S
from tidegate.app.http.formats import choice

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME: Final = "canaryname"
ROW: Final = "canaryrow"
DATA: Final = "canarydata"
HIDDEN: Final = f"alpha.{NAME}"
SHARED: Final = "shared"
OWNER: Final = token_of(f"{NAME}-owner", "read,write,admin,observe >", "read tidegate.>")
ROWS: Final = grant(f"read {SHARED}", filter="/desk = 'a'")
FIELDS: Final = grant(f"read {SHARED}", select="[-/,+/k,+/desk,+/px]")
BOTH: Final = grant(f"read {SHARED}", filter="/desk = 'a'", select="[-/,+/k,+/desk,+/px]")
EVERYWHERE: Final = (NAME, ROW, DATA)
INSIDE: Final = (ROW, DATA)

SUBJECTS: Final[Mapping[str, tuple[dict[str, str], tuple[str, ...]]]] = {
    "nobody": ({}, EVERYWHERE),
    "expired": (token_of("old", "read >", exp=int(time.time()) - SKEW_S - 9), EVERYWHERE),
    "without": (token_of("nia"), EVERYWHERE),
    "elsewhere": (token_of("eve", "read,write,admin open.>", "read tidegate.>"), EVERYWHERE),
    "writer": (token_of("wes", "write >"), INSIDE),
    "admin": (token_of("ada", "admin >"), INSIDE),
    "observer": (token_of("obi", "observe >"), INSIDE),
    "rows": (token_of("ray", ROWS), EVERYWHERE),
    "fields": (token_of("fay", FIELDS), (NAME, DATA)),
    "both": (token_of("bea", BOTH), EVERYWHERE),
}
"""Subjects, and what must not reach them: who may define a topic or observe knows its name."""

NARROWED: Final = ("rows", "fields", "both")

RECORDS: Final = [
    {"k": "a1", "desk": "a", "px": 1},
    {"k": f"{ROW}-b", "desk": "b", "px": 2, "note": f"{DATA} b", f"{DATA}field": DATA},
]


def record(narrowed: str, number: int) -> dict[str, object]:
    """A record that a narrowed subject sees, without what it may not see."""
    found: dict[str, object] = {"k": f"a{number}", "desk": "a", "px": number}
    if narrowed != "rows":
        found |= {"note": f"{DATA} a", f"{DATA}field": {"x": DATA}}
    return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A gateway with a topic nobody else may see, and one that is shared in part."""
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.json", public_jwk("HS256"))
    async with running_gateway(auth_keys=keys, log_requests=True) as running:
        running.http.headers.update(OWNER)
        await running.topic(HIDDEN, description=f"{NAME} {DATA}")
        await running.topic(SHARED, description=NAME)
        await running.topic("open.one")
        for topic in (HIDDEN, SHARED):
            await running.publish(*RECORDS, topic=topic)
        with mock.patch.object(running.gateway.sessions, "_new_id", return_value="known"):
            await opened(running, subscriptions=[{"topic": HIDDEN}, {"topic": SHARED}])
        yield running


async def begin_anew(running: Running) -> None:
    """Make the shared topic again: what one subject may see another one may not."""
    assert (await running.http.delete(f"/v1/topics/{SHARED}")).status_code == 204
    await running.topic(SHARED, description=NAME)
    await running.publish(*RECORDS, topic=SHARED)


async def heard(running: Running, raw: bytes, seconds: float = 0.0) -> bytes:
    """All that a request is answered; of a stream what comes in so many seconds."""
    async with connected(running.address) as wire:
        with contextlib.suppress(ConnectionError):
            await wire.send(raw)
        received = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(HANGS_S):
                while piece := await wire.reader.read(65_536):
                    received += piece
                    if b"text/event-stream" in received:
                        break
        if b"text/event-stream" in received:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(seconds):
                    while piece := await wire.reader.read(65_536):
                        received += piece
        return received


def sent_by(headers: Mapping[str, str], raw: bytes) -> bytes:
    """The request with a subject's token."""
    first, _, rest = raw.partition(b"\r\n")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return first + b"\r\n" + lines.encode() + rest


def leaks(received: bytes | bytearray, canaries: tuple[str, ...]) -> list[str]:
    """The canaries in an answer, however they are spelled."""
    text = received.decode("utf-8", "replace").lower()
    return [canary for canary in canaries if canary in text]


def asked_for(operation: Operation) -> list[bytes]:
    """Sound requests for what a subject may not see, and for what it may see in part."""
    requests = []
    for topic in (HIDDEN, SHARED):
        for key in ('["a1"]', f'["{ROW}-b"]'):
            steps = {"topic": topic, "record_key": quote(key)}
            target = operation.target(**{it: steps[it] for it in operation.steps if it in steps})
            body = operation.body
            if body is not None:
                body = body.replace(b'"keyed"', json.dumps(topic).encode())
            requests.append(operation.request(target=target, body=body))
            formats = operation.answers if len(operation.answers) > 1 else ()
            requests += [operation.request(f"Accept: {it}", target=target) for it in formats]
            if "filter" in operation.queries:
                asked = quote(f"/k != 'x{len(key)}' OR TRUE")
                requests.append(operation.request(target=f"{target}?filter={asked}"))
    return requests


def some_nightly(*usual: str, of: Iterable[str]) -> list[ParameterSet]:
    """Parameters of which all but the usual ones are nightly."""
    return [
        pytest.param(each, marks=() if each in usual else pytest.mark.nightly, id=each)
        for each in of
    ]


SAFE: Final = [it for it in operations() if it.name not in {"delete_topic", "put_topic"}]
"""Operations that take nothing away which later ones need: an admin may delete, of course."""


@pytest.mark.parametrize("subject", some_nightly("without", "writer", "both", of=SUBJECTS))
async def test_no_operation_tells_of_what_may_not_be_seen(
    running: Running, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidegate")
    headers, canaries = SUBJECTS[subject]
    await begin_anew(running)
    found = {}
    for operation in SAFE:
        for number, raw in enumerate(asked_for(operation)):
            received = await heard(running, sent_by(headers, raw), 0.02)
            assert received, operation.name
            if leaked := leaks(received, canaries):
                found[f"{operation.name} {number}"] = leaked, received[-300:]
    assert not found
    assert leaks(caplog.text.encode(), INSIDE) == []


@pytest.mark.nightly
@pytest.mark.parametrize("subject", ["elsewhere", "both"])
async def test_no_refusal_tells_of_what_may_not_be_seen(running: Running, subject: str) -> None:
    """The hostile requests of the catalogue, about the hidden topic."""
    headers, canaries = SUBJECTS[subject]
    found = {}
    for operation in SAFE:
        for kind, cases in KINDS.items():
            for case in list(cases(operation))[::5]:
                raw = case.raw.replace(b"/keyed", b"/" + HIDDEN.encode(), 1)
                # A pointer may repeat a name of the request itself.
                received = await heard(running, sent_by(headers, raw), 0.01)
                if leaked := leaks(received, canaries):
                    found[f"{operation.name} {kind} {case.name}"] = leaked, received[-300:]
    assert not found


OPTIONS: Final = [
    "", "conflation=50ms", "oof", "conflation=50ms,oof", "timestamp,receipt,send_keys",
    "conflation=50ms,pace=key", "bookmark=epoch", "top_n=5", "top_n=1,skip_n=1", "progress",
    "conflation=auto", "select=[+/]", "select=[-/,+/note]", "no_empties",
    "flush_on=[/desk = 'b']", "never=[/note = 'x']", "projection=[/k,SUM(/px) AS /n],grouping=[/k]",
    "conflation=50ms,conflation_key=[/note]", "conflation=50ms,reduce=[/note:last@n]",
]  # fmt: skip
COMMANDS: Final = ["subscribe", "sow_and_subscribe", "sow", "delta_subscribe",
                   "sow_and_delta_subscribe"]  # fmt: skip
FORMATS: Final = ["value", "envelope", "batch"]


@pytest.mark.parametrize("subject", some_nightly("both", of=NARROWED))
async def test_a_stream_of_a_part_shows_that_part(running: Running, subject: str) -> None:
    """All options, commands and formats at once, while rows come, change sides and go."""
    headers, canaries = SUBJECTS[subject]
    await begin_anew(running)
    async with contextlib.AsyncExitStack() as stack:
        wires: dict[str, Wire] = {}

        async def opened_by(headers: Mapping[str, str], query: str) -> Wire:
            wire = await stack.enter_async_context(connected(running.address))
            target = f"/v1/topics/{SHARED}/subscribe?{query}"
            head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            await wire.send(sent_by(headers, head.encode()))
            return wire

        for options in OPTIONS:
            # The owner first, whose equal subscription must not lend its lane to a part.
            await (await opened_by(OWNER, f"options={quote(options)}")).read_until(b"\r\n\r\n")
            for command in COMMANDS:
                form = FORMATS[len(wires) % len(FORMATS)]
                query = f"options={quote(options)}&command={command}&format={form}"
                wires[f"{options} {command} {form}"] = await opened_by(headers, query)
        # With a filter of its own, `oof` shows the record that no longer matches.
        for options in ("oof", "conflation=50ms,oof", "oof,send_keys"):
            query = f"options={quote(options)}&filter=/desk+%3D+'a'"
            wires[f"{options} filter"] = await opened_by(headers, query)
        received = {name: bytearray() for name in wires}
        await take_all(wires, received, b"group_end")
        await changes(running, subject)
        await running.publish(record(subject, 9), topic=SHARED)
        await take_all(wires, received, b'"a9"')
    found = {name: bytes(text[-400:]) for name, text in received.items() if leaks(text, canaries)}
    assert not found
    assert sum(b"event: hello" in text for text in received.values()) > len(wires) // 4


async def take_all(wires: Mapping[str, Wire], received: dict[str, bytearray], mark: bytes) -> None:
    """Read what comes until many streams have had the mark; some of them never will."""
    async with asyncio.timeout(HANGS_S):
        while sum(mark in text for text in received.values()) < len(wires) // 6:
            for name, wire in wires.items():
                received[name] += await received_by_now(wire)


async def received_by_now(wire: Wire) -> bytearray:
    """The bytes that have come, without waiting for more."""
    received = bytearray()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.005):
            while piece := await wire.reader.read(65_536):
                received += piece
    return received


async def changes(running: Running, subject: str) -> None:
    """Rows come, change, are hidden, shown again and removed; others were never to be seen."""
    shown = [record(subject, number) for number in (7, 8)]
    hidden = {"k": f"{ROW}-c", "desk": "b", "px": 3, "note": DATA, f"{DATA}field": [DATA]}
    moved = {**shown[0], "desk": "b", "px": 4} | ({"note": DATA} if subject == "rows" else {})
    for each in (*shown, hidden, moved, *shown, hidden):
        await running.publish(each, topic=SHARED)
    for key in ("a8", f"{ROW}-c"):
        at = f"/v1/topics/{SHARED}/sow?key={quote(json.dumps([key]))}"
        assert (await running.http.delete(at)).status_code == 200
    await running.publish(*shown, topic=SHARED)


async def test_a_session_of_a_part_shows_that_part(running: Running) -> None:
    """By POST, with a patched subscription, left and come back to."""
    headers, _ = SUBJECTS["both"]
    await begin_anew(running)
    wanted = [
        {"topic": SHARED, "options": options}
        for options in ("", "conflation=50ms", "conflation=auto,oof")
    ]
    answer = await running.http.post(
        "/v1/sessions", json={"subscriptions": [*wanted, {"topic": ">"}]}, headers=headers
    )
    assert answer.status_code == 201, answer.text
    session = answer.json()["session"]
    said = [answer.text]
    events = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for number in (20, 21):
        async with connected(running.address) as wire:
            await wire.send(sent_by(headers, events.encode()))
            said.append((await wire.read_until(b"group_end")).decode())
            await changes(running, "both")
            for name, change in (("s1", {"filter": "/px > 0"}), ("s2", {"conflation": "100ms"})):
                patched = await running.http.patch(
                    f"/v1/sessions/{session}/subscriptions/{name}", json=change, headers=headers
                )
                assert patched.status_code == 200, patched.text
                said.append(patched.text)
            await running.publish(record("both", number), topic=SHARED)
            said.append((await wire.read_until(b'"a%d"' % number)).decode())
        await changes(running, "both")
    for path in ("", "/subscriptions", "/subscriptions/s1", "/subscriptions/s1/auto",
                 "/subscriptions/s4"):  # fmt: skip
        shown = await running.http.get(f"/v1/sessions/{session}{path}", headers=headers)
        said.append(shown.text)
    assert any('"a7"' in text for text in said)
    assert leaks("".join(said).encode(), EVERYWHERE) == []
    assert (await running.http.delete(f"/v1/sessions/{session}", headers=headers)).is_success


READS: Final = [
    "sow", "sow?format=envelope", "sow?order_by=/px+DESC", "sow?top_n=1&skip_n=1", "sow?as_of=NOW",
    "sow?select=[%2B/]", "sow?select=[-/,%2B/note]", "sow?filter=/px+%3E+0",
    "sow?filter=/note+IS+NOT+NULL", "sow?order_by=/note",
    f"sow/{quote(json.dumps([ROW + '-b']))}", "sow/%5B%22a1%22%5D", "messages", "",
]  # fmt: skip


@pytest.mark.parametrize("subject", some_nightly("both", of=NARROWED))
async def test_reads_of_a_part_show_that_part(running: Running, subject: str) -> None:
    headers, canaries = SUBJECTS[subject]
    await begin_anew(running)
    await changes(running, subject)
    now = quote(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1)))
    found = {}
    for read in READS:
        path = f"/v1/topics/{SHARED}/{read.replace('NOW', now)}".rstrip("/")
        for accept in choice.FORMATS if read.startswith("sow") else ("*/*",):
            answer = await running.http.get(path, headers={**headers, "Accept": accept})
            if leaked := leaks(str(answer.headers).encode() + answer.content, canaries):
                found[f"{read} {accept}"] = leaked, answer.text[-300:]
    for options in OPTIONS:
        body = {"topic": SHARED, "options": options, "filter": "/px > 0", "order_by": "/px"}
        answer = await running.http.post("/v1/explain", json=body, headers=headers)
        if leaked := leaks(answer.content, canaries):
            found[f"explain {options}"] = leaked, answer.text[-300:]
    assert not found


async def test_after_a_revocation_nothing_more_comes(tmp_path: Path) -> None:
    """Streams, sessions, ids and tickets of before are worth nothing, and no new ones are given."""
    policy = tmp_path / "policy.toml"
    granting = f'claim = "groups"\n[[grants.g]]\ntopics = "{SHARED}"\ncan = ["read"]\n'
    policy.write_text(granting)
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    ron = token_of("ron", groups=["g"])
    async with running_gateway(auth_keys=keys, auth_policy=str(policy)) as running:
        running.http.headers.update(OWNER)
        await running.topic(SHARED)
        await running.publish({"k": "a1"}, topic=SHARED)
        ticket = (await running.http.post("/v1/tickets", headers=ron)).json()["ticket"]
        body = {"subscriptions": [{"topic": SHARED}]}
        made = await running.http.post("/v1/sessions", json=body, headers=ron)
        session = made.json()["session"]
        targets = [
            f"/v1/topics/{SHARED}/subscribe", "/v1/topics/%3E/subscribe",
            f"/v1/sessions/{session}/events", f"/v1/topics/{SHARED}/subscribe?ticket={ticket}",
        ]  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:
            wires = []
            for target in targets:
                wire = await stack.enter_async_context(connected(running.address))
                head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                await wire.send(head if "ticket" in target else sent_by(ron, head))
                await wire.read_until(b"group_end")
                wires.append(wire)
            policy.write_text(granting.replace(SHARED, "other"))
            for wire in wires:
                ended = await wire.read_until(b"goodbye")
                assert leaks(ended, EVERYWHERE) == []
            await running.publish(*RECORDS, topic=SHARED)
            tails = [bytes(await received_by_now(wire)) for wire in wires]
        assert all(b"REVOKED" in tail for tail in tails), tails
        more = [
            f"/v1/topics/{SHARED}/sow",
            f"/v1/topics/{SHARED}/messages",
            "/v1/topics",
            f"/v1/sessions/{session}",
            "/v1/lanes",
            "/v1/polled",
            "/metrics",
        ]
        for target in targets + more:
            for id_line in ("", "Last-Event-ID: x-1\r\n"):
                lines = f"Host: localhost\r\nConnection: close\r\n{id_line}\r\n"
                raw = f"GET {target} HTTP/1.1\r\n{lines}".encode()
                token = {} if "ticket" in target else ron
                tails.append(await heard(running, sent_by(token, raw), 0.1))
        assert [leaks(tail, EVERYWHERE) for tail in tails] == [[]] * len(tails)


async def test_the_owner_sees_the_canaries(running: Running) -> None:
    """Else these tests would show nothing."""
    for target in (f"/v1/topics/{HIDDEN}", f"/v1/topics/{HIDDEN}/sow", "/v1/topics"):
        raw = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        assert leaks(await heard(running, sent_by(OWNER, raw)), EVERYWHERE)
    raw = f"GET /v1/topics/{HIDDEN}/subscribe HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    assert leaks(await heard(running, sent_by(OWNER, raw), 0.2), EVERYWHERE) == list(EVERYWHERE)
