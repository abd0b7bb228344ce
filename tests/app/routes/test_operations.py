"""Health, readiness, metrics over HTTP."""

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
