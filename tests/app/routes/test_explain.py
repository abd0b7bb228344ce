"""`POST /v1/explain`: the same answers and the same refusals as subscribing."""

from __future__ import annotations

import pytest

from tests.support.gateways import JSON, running_gateway


async def test_an_explanation_changes_nothing() -> None:
    async with running_gateway() as running:
        await running.topic()
        wish = {"topic": "px", "options": "conflation=1s,oof", "filter": "/a = 1"}
        answer = await running.http.post("/v1/explain", json=wish)
        assert answer.status_code == 200
        told = answer.json()
        assert told["options"] == "conflation=1s,conflation_key=[/k],pace=batch,oof"
        assert told["resume"] == "snapshot"
        lanes = await running.http.get("/v1/lanes")
        assert lanes.json() == {"lanes": []}


@pytest.mark.parametrize(
    "wish",
    [
        {"options": "conflation=2h3"},
        {"options": "speed=9"},
        {"options": "no_empties"},
        {"filter": "/a = "},
        {"order_by": "/a UP"},
        {"command": "publish"},
    ],
)
async def test_it_refuses_what_subscribing_refuses(wish: dict[str, str]) -> None:
    async with running_gateway() as running:
        await running.topic()
        explained = await running.http.post("/v1/explain", json={"topic": "px", **wish})
        subscribed = await running.http.post("/v1/topics/px/subscribe", json=wish)
        assert explained.status_code == 400
        assert explained.json() == subscribed.json()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ('{"topic": "nowhere"}', 404, "topic-unknown"),
        ('{"topic": "p x"}', 400, "topic-invalid"),
        ("{}", 400, "topic-invalid"),
        ('{"topic": 1}', 400, "topic-invalid"),
        ('{"topic": "px", "format": "table"}', 400, "options-invalid"),
        ('{"topic": "px", "shape": "value"}', 400, "options-invalid"),
        ("[", 400, "options-invalid"),
    ],
)
async def test_what_is_no_request(body: str, status: int, code: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.post("/v1/explain", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_it_names_the_lane_that_the_format_gets() -> None:
    """Rows that tell their first message run on a lane that looks at every one."""
    async with running_gateway() as running:
        await running.topic()
        wish = {"topic": "px", "options": "conflation=1s", "format": "envelope"}
        answer = await running.http.post("/v1/explain", json=wish)
        async with running.subscribe("conflation=1s", format="envelope"):
            (lane,) = (await running.http.get("/v1/lanes")).json()["lanes"]
        assert answer.json()["lane"] == lane["lane"]
