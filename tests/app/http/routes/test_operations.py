"""Health, readiness, metrics and lanes over HTTP."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateways import running_gateway


async def test_alive_and_ready() -> None:
    async with running_gateway() as running:
        assert (await running.http.get("/healthz")).status_code == 200
        assert (await running.http.get("/readyz")).status_code == 200


async def test_alive_but_not_ready_while_stopping() -> None:
    async with running_gateway() as running:
        running.gateway.say_goodbye()
        assert (await running.http.get("/healthz")).status_code == 200
        answer = await running.http.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
        assert "shutting down" in answer.json()["detail"]


async def test_metrics_are_readable_by_prometheus() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"tidegate_sessions", "tidegate_topic_messages_in"} <= families


async def test_an_idle_gateway_has_no_lanes() -> None:
    async with running_gateway() as running:
        await running.topic()
        assert (await running.http.get("/v1/lanes")).json() == {"lanes": []}


async def test_a_lane_is_listed_with_its_members_position_and_deadline() -> None:
    async with running_gateway() as running:
        await running.topic()
        first = (await running.publish({"k": 1}))["last"]
        async with (
            running.subscribe("conflation=1h"),
            running.subscribe("conflation=60m,pace=batch"),
            running.subscribe("conflation=1h,pace=key"),
        ):
            lanes = (await running.http.get("/v1/lanes")).json()["lanes"]
            assert [lane["subscriptions"] for lane in lanes] == [2, 1]
            assert lanes[0] == {
                "topic": "px",
                "lane": running.hellos[0]["subscriptions"][0]["lane"],
                "subscriptions": 2,
                "interval_ms": 3_600_000,
                "position": first,
                "due_ms": None,
            }
            await running.publish({"k": 2})
            held = (await running.http.get("/v1/lanes")).json()["lanes"]
            assert [lane["position"] for lane in held] == [first, first]
            assert all(3_000_000 < lane["due_ms"] <= 3_600_050 for lane in held)


async def test_the_lanes_of_one_topic() -> None:
    async with running_gateway() as running:
        await running.topic("a")
        await running.topic("b")
        async with running.subscribe(topic="a"), running.subscribe(topic="b"):
            [lane] = (await running.http.get("/v1/lanes?topic=b")).json()["lanes"]
            assert (lane["topic"], lane["interval_ms"]) == ("b", 0)


async def test_a_topic_that_is_not_there_has_none() -> None:
    async with running_gateway() as running:
        assert (await running.http.get("/v1/lanes?topic=px")).status_code == 404
        assert (await running.http.get("/v1/lanes?topic=p%20x")).status_code == 400
        assert (await running.http.get("/v1/lanes?zzq=1")).status_code == 400
