"""Only pipelines report their state, in one form."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.support.gateways import JSON, Running, running_gateway
from tests.support.rules import rule
from tidegate.app.topics.system_topics import PIPELINES, STATES
from tidegate.pipeline.operations.status import State

STANDS: dict[str, Any] = {
    "pipeline": "ticks-1s", "state": "running", "batch": 7, "batches": 8, "messages": 900,
    "published": 40, "dead_letters": 1, "rows_per_s": 512.5, "batch_s": 0.25, "lag": 3,
    "held_keys": None, "restarts": 0, "error": "", "at_ms": 1_700_000_000_000,
}  # fmt: skip


async def report(
    running: Running, document: object, number: int = 1, producer: str = "tidegate.pipeline.a"
) -> httpx2.Response:
    headers = {**JSON, "Tidegate-Producer": producer, "Tidegate-Sequence": str(number)}
    content = json.dumps(document).encode()
    path = f"/v1/topics/{PIPELINES}/messages"
    return await running.http.post(path, content=content, headers=headers)


@rule("pipeline-11")
async def test_the_newest_of_each_pipeline_is_its_record() -> None:
    async with running_gateway() as running:
        for number, state in enumerate(("starting", "running")):
            answer = await report(running, {**STANDS, "state": state}, number)
            assert answer.status_code == 200, answer.text
        answer = await running.http.get(f"/v1/topics/{PIPELINES}/sow")
        assert [json.loads(line) for line in answer.text.splitlines()] == [STANDS]
        listed = (await running.http.get("/v1/topics")).json()["topics"]
        assert listed == []


@rule("pipeline-11")
@pytest.mark.parametrize("producer", ["tidegate.spark.a", "someone"])
async def test_nobody_else_may_tell(producer: str) -> None:
    async with running_gateway() as running:
        answer = await report(running, STANDS, producer=producer)
        assert answer.json()["code"] == "topic-read-only"


async def test_a_pipeline_may_tell_nothing_of_sessions() -> None:
    async with running_gateway() as running:
        path = "/v1/topics/tidegate.sessions/messages"
        headers = {**JSON, "Tidegate-Producer": "tidegate.pipeline.a", "Tidegate-Sequence": "1"}
        answer = await running.http.post(path, content=b"{}", headers=headers)
        assert answer.json()["code"] == "topic-read-only"
        answer = await running.http.delete(f"/v1/topics/{PIPELINES}")
        assert answer.json()["code"] == "topic-read-only"


@rule("pipeline-11")
@pytest.mark.parametrize(
    "wrong",
    [{"state": "happy"}, {"batch": -1}, {"pipeline": "a b"}, {"more": 1}, {"error": 5}],
    ids=str,
)
async def test_what_has_another_form_is_refused(wrong: dict[str, Any]) -> None:
    async with running_gateway() as running:
        answer = await report(running, {**STANDS, **wrong})
        assert answer.json()["code"] == "schema-violation"


def test_the_states_are_those_of_the_pipeline() -> None:
    assert list(STATES) == [state.value for state in State]
