"""Bad input: the documented refusal with its position, no effect, and no echo in the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from unittest import mock

import pytest
import pytest_asyncio

from tests.support.cases.case import (
    MESSAGE_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Bad,
    without_names,
)
from tests.support.cases.requests import GROUPS
from tests.support.gateways import Running, running_gateway
from tests.support.sessions import opened
from tests.support.wire import exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = [
    pytest.param(case, id=f"{group}-{at}-{case.name!a}")
    for group, cases in GROUPS.items()
    for at, case in enumerate(cases)
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running() -> AsyncIterator[Running]:
    """A gateway with a topic of each kind, two messages in those that requests are to change."""
    async with running_gateway(
        message_bytes_max=MESSAGE_BYTES_MAX, request_bytes_max=REQUEST_BYTES_MAX,
        request_messages_max=100, session_retention="1h",
    ) as running:  # fmt: skip
        await running.topic("keyed")
        await running.topic("plain", key=())
        source = {"topic": "keyed", "interval": "1s", "engine": "spark"}
        await running.topic("filled", source=source)
        await running.topic("slow", key=(), source={"topic": "keyed", "interval": "1h"})
        await running.topic("text", key=(), type="text", retain=True)
        await running.topic("bytes", key=(), type="binary")
        await running.topic("checked", schema={"properties": {"v": {"type": "number"}}})
        for topic in ("keyed", "plain"):
            await running.publish({"k": 1}, {"k": "a"}, topic=topic)
        with mock.patch.object(running.gateway.sessions, "_new_id", return_value="known"):
            await opened(running, subscriptions=[{"topic": "keyed", "options": "conflation=1s"}])
        yield running


async def state(running: Running) -> object:
    """What a refused request might have changed: each topic's figures, and all sessions."""
    topics = (await running.http.get("/v1/topics")).json()
    known = (await running.http.get("/v1/sessions/known")).json()
    sessions = (await running.http.get("/v1/sessions")).json()
    return topics, known, sessions, running.gateway.driver.engine.stats().sessions


async def journals(running: Running) -> dict[str, str]:
    """All messages, by topic."""
    topics = [each["topic"] for each in (await running.http.get("/v1/topics")).json()["topics"]]
    return {name: (await running.http.get(f"/v1/topics/{name}/messages")).text for name in topics}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def before(running: Running) -> object:
    """The state before any bad input."""
    return await state(running)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def journals_before(running: Running) -> dict[str, str]:
    """All messages before any bad input."""
    return await journals(running)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("journals_before")
async def test_bad_input_is_refused_without_effect(
    running: Running, before: object, case: Bad
) -> None:
    answer = await exchange(running.address, case.raw)
    problem = answer.problem
    assert (answer.status, problem["code"]) == (case.status, case.code), problem
    assert case.fields.items() <= problem.items(), problem
    assert problem.keys() <= {
        "type", "title", "status", "detail", "code", "position", "line", "pointer"
    }  # fmt: skip
    shown = {name: value for name, value in problem.items() if name != "pointer"}
    assert "zzq" not in without_names(json.dumps(shown).lower())
    assert await state(running) == before


async def test_no_bad_input_changed_a_message(
    running: Running, journals_before: dict[str, str]
) -> None:
    """Runs after all of it: the figures of a topic tell of each message that comes or goes."""
    assert await journals(running) == journals_before


async def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 60


GOOD = [
    "conflation=2S", " conflation = 250ms , pace=key ,", "conflation=none", "conflation=1d,",
    "conflation=1s,conflation_key=[/k , $.a.b]", "",
]  # fmt: skip


@pytest.mark.parametrize("options", GOOD)
async def test_what_only_looks_bad_is_taken(running: Running, options: str) -> None:
    async with running.subscribe(options, topic="keyed", command="subscribe"):
        [subscription] = running.hellos[-1]["subscriptions"]
    assert subscription["options"].startswith("conflation=")


async def test_a_name_is_taken_as_it_is(running: Running) -> None:
    """B41, B46: distinct by case, and no file system is involved."""
    for name in ("Orders", "orders", "CON", "NUL", "a.json", "0" + "." * 128, "z" * 255):
        published = await running.publish(1, topic=name)
        assert json.loads((await running.http.get(f"/v1/topics/{name}")).text)["messages_in"] == 1
        assert published["topic"] == name
        assert (await running.http.delete(f"/v1/topics/{name}")).status_code == 204
