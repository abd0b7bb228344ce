"""Hostile requests to every operation: the documented refusal, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio

from tests.hostile.case import Hostile
from tests.hostile.catalogue import KINDS, OPEN
from tests.hostile.headers import credentials
from tests.hostile.operations import Operation, operations
from tests.support.cases.case import without_names
from tests.support.gateways import Running, running_gateway
from tests.support.sessions import opened
from tests.support.tokens import public_jwk, token_of, write_keys
from tests.support.wire import Answer, connected, parse_answer
from tidegate.app.refusals import CODES

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = token_of("root", "read,write,admin,observe >", "read,admin tidegate.>")
KNOWN_FIELDS = {"type", "title", "status", "detail", "code", "position", "line", "pointer"}
SECOND_STATUS = {("host-not-allowed", 400)}
"""Statuses that a code has beside its own."""
STUCK_S = 30.0
CASES = [
    pytest.param(operation, kind, id=f"{operation.name}-{kind}")
    for operation in operations()
    for kind in KINDS
    if next(KINDS[kind](operation), None) is not None
]
GUARDED = [it for it in operations() if it.path not in OPEN or it.place == ("GET", "/v1/login")]
STRIDE = 7
"""Of so many hostile requests of a kind to an operation, the unit tests send one."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A gateway with something to lose: topics of each type, records, a session."""
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.json", public_jwk("HS256"))
    async with running_gateway(
        auth_keys=keys, auto_create_topics=True, message_bytes_max=2_048,
        request_bytes_max=16_384, request_messages_max=100, session_retention="1h",
    ) as running:  # fmt: skip
        running.http.headers.update(ROOT)
        await running.topic("keyed")
        await running.topic("plain", key=())
        await running.topic("text", key=(), type="text", retain=True)
        for topic in ("keyed", "plain"):
            await running.publish({"k": "a"}, {"k": "b"}, topic=topic)
        with mock.patch.object(running.gateway.sessions, "_new_id", return_value="known"):
            await opened(running, subscriptions=[{"topic": "keyed", "options": "conflation=1s"}])
        yield running


async def fingerprint(running: Running) -> Any:
    """The state that a refused request might have changed."""
    http, gateway = running.http, running.gateway
    listed = (await http.get("/v1/topics")).json()
    topics = {}
    for topic in (it["topic"] for it in listed["topics"]):
        shown = await http.get(f"/v1/topics/{topic}")
        journal = await http.get(f"/v1/topics/{topic}/messages")
        records = await http.get(f"/v1/topics/{topic}/sow")
        topics[topic] = shown.headers["etag"], shown.json(), journal.text, records.text
    own = await http.get("/v1/topics/tidegate.sessions/messages")
    sessions = (await http.get("/v1/sessions")).json()
    known = (await http.get("/v1/sessions/known")).json()
    subscriptions = (await http.get("/v1/sessions/known/subscriptions")).json()
    return {
        "topics": topics,
        "own": own.text,
        "sessions": sessions,
        "known": known,
        "subscriptions": subscriptions,
        "engine": gateway.driver.engine.stats().sessions,
        "store": sorted(vars(gateway.store).get("_topics", ())),
    }


async def answer_to(running: Running, raw: bytes) -> Answer:
    """The answer up to the close; a stream that has begun is no refusal, and is not waited for."""
    async with connected(running.address) as wire, asyncio.timeout(STUCK_S):
        with contextlib.suppress(ConnectionError):
            await wire.send(raw)
        received = b""
        while piece := await wire.reader.read(65_536):
            received += piece
            if b"text/event-stream" in received:
                break
        return parse_answer(received)


def authorized(raw: bytes) -> bytes:
    """The request with the token of a subject that may do everything."""
    first, _, rest = raw.partition(b"\r\n")
    return first + f"\r\nAuthorization: {ROOT['Authorization']}\r\n".encode() + rest


def fault(case: Hostile, answer: Answer) -> str | None:
    """The first fault of an answer."""
    media_type = answer.headers.get("content-type", "none")
    if answer.status < 400 or media_type != "application/problem+json":
        return f"{answer.status} {media_type} {answer.body[:200]!r}"
    problem = answer.problem
    code, status = problem["code"], answer.status
    if code not in case.codes:
        return f"{status} {code}, not {sorted(case.codes)}: {problem['detail']}"
    if status != CODES[code][0] and (code, status) not in SECOND_STATUS:
        return f"{code} with status {status}"
    if status == 405 and not answer.headers.get("allow"):
        return "405 without Allow"
    if not problem.keys() <= KNOWN_FIELDS:
        return f"fields {sorted(problem)}"
    if case.pointer is not None and not _points(problem.get("pointer", ""), case.pointer):
        return f"{code} points to {problem.get('pointer')!r}, not {case.pointer}"
    if "zzq" in without_names(json.dumps(problem | {"pointer": ""}).lower()):
        return f"it repeats what was sent: {problem}"
    if "zzq" in str(answer.headers).lower():
        return f"its header repeats what was sent: {answer.headers}"
    if answer.headers.get("x-content-type-options") != "nosniff":
        return "no nosniff"
    return None


def fault_without_token(case: Hostile, answer: Answer) -> str | None:
    """The first fault of the answer to a request of nobody."""
    found = fault(case, answer)
    if found is None and "www-authenticate" not in answer.headers:
        return "no WWW-Authenticate"
    return found


def _points(pointer: str, wanted: str) -> bool:
    return pointer == wanted or pointer.startswith(f"{wanted}/")


@pytest.mark.parametrize("kind", KINDS)
async def test_some_of_each_kind_are_refused_without_effect(running: Running, kind: str) -> None:
    """A sample, which is another one for each operation; the next tests send all, nightly."""
    before = await fingerprint(running)
    faults = {}
    for number, operation in enumerate(operations()):
        for case in islice(KINDS[kind](operation), number % STRIDE, None, STRIDE):
            found = fault(case, await answer_to(running, authorized(case.raw)))
            if found is not None:
                faults[f"{operation.name} {case.name}"] = found
    assert not faults
    assert await fingerprint(running) == before


async def test_nobody_is_answered_without_a_token(running: Running) -> None:
    faults = {}
    for number, operation in enumerate(GUARDED):
        for case in islice(credentials(operation), number % STRIDE, None, STRIDE):
            found = fault_without_token(case, await answer_to(running, case.raw))
            if found is not None:
                faults[f"{operation.name} {case.name}"] = found
    assert not faults


@pytest.mark.nightly
@pytest.mark.parametrize(("operation", "kind"), CASES)
async def test_hostile_requests_are_refused_without_effect(
    running: Running, operation: Operation, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = await fingerprint(running)
    faults = {}
    for case in KINDS[kind](operation):
        found = fault(case, await answer_to(running, authorized(case.raw)))
        if found is not None:
            faults[case.name] = found
    assert not faults
    assert await fingerprint(running) == before
    assert [it.message for it in caplog.records if it.levelno >= logging.WARNING] == []


@pytest.mark.nightly
@pytest.mark.parametrize("operation", GUARDED, ids=lambda it: it.name)
async def test_nobody_learns_more_than_that_a_token_is_wanted(
    running: Running, operation: Operation
) -> None:
    before = await fingerprint(running)
    faults = {}
    for case in credentials(operation):
        found = fault_without_token(case, await answer_to(running, case.raw))
        if found is not None:
            faults[case.name] = found
    assert not faults
    assert await fingerprint(running) == before


async def test_the_catalogue_is_long() -> None:
    count = sum(len(list(kind(it))) for it in operations() for kind in KINDS.values())
    assert count > 2_500
