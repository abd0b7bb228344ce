"""Metrics: Prometheus can read them, and they add up."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.metrics import exposition
from tests.support.gateways import Running, eventually, running_gateway


def samples(running: Running) -> dict[str, float]:
    text = exposition(running.gateway.driver, running.gateway.mergers).decode()
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def identity(running: Running, topic: str = "px") -> tuple[float, float]:
    found = samples(running)
    counted = {
        name: found[f"tidegate_topic_{name}{{{topic}}}"]
        for name in ("matched_total", "delivered_total", "dropped_total", "conflated", "waiting")
    }
    matched = counted.pop("matched_total")
    return matched, sum(counted.values())


async def test_an_idle_gateway_has_metrics() -> None:
    async with running_gateway() as running:
        found = samples(running)
        assert found["tidegate_sessions"] == 0
        assert found["tidegate_topics"] == 1  # the gateway's own
        assert found["tidegate_flushes_total"] == 0


async def test_matched_is_delivered_conflated_dropped_and_waiting() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with (
            running.subscribe("conflation=50ms", command="subscribe") as quick,
            running.subscribe("conflation=1h", command="subscribe"),
        ):
            await running.publish({"k": 1}, {"k": 1}, {"k": 2})
            await quick.values(2)
            found = samples(running)
            assert found["tidegate_topic_messages_in_total{px}"] == 3
            assert found["tidegate_topic_keys{px}"] == 2
            assert found["tidegate_topic_matched_total{px}"] == 6
            assert found["tidegate_topic_delivered_total{px}"] == 2
            assert found["tidegate_topic_conflated{px}"] == 2
            assert found["tidegate_topic_waiting{px}"] == 2
            assert found["tidegate_topic_subscriptions{px}"] == 2
            assert found["tidegate_sessions"] == 2
            assert identity(running) == (6, 6)
        await eventually(lambda: not samples(running)["tidegate_sessions"], "both leave")
        found = samples(running)
        assert found["tidegate_topic_dropped_total{px}"] == 2
        assert found["tidegate_topic_dropped_reasons_total{GONE}{px}"] == 2
        assert found["tidegate_topic_waiting{px}"] == 0
        assert identity(running) == (6, 6)


WISHES = [
    ("conflation=20ms,receipt", {"format": "batch"}),
    ("conflation=20ms,oof", {"filter": "/v > 3"}),
    ("conflation=20ms,pace=key", {"command": "sow_and_delta_subscribe"}),
    ("conflation=20ms,oof,top_n=2", {"order_by": "/v DESC"}),
    ("conflation=20ms,never=[/v = 5]", {}),
    ("conflation=20ms,reduce=[/v:sum]", {"command": "subscribe"}),
    ("oof,projection=[/g,SUM(/v) AS /v],grouping=[/g]", {}),
    ("no_empties", {"command": "sow_and_delta_subscribe"}),
]


@pytest.mark.parametrize(("options", "query"), WISHES)
async def test_the_sums_add_up_whatever_is_asked_for(options: str, query: dict[str, str]) -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe(options, **query) as stream:
            for n in range(40):
                await running.publish({"k": n % 3, "g": n % 2, "v": n % 7})
                assert len(set(identity(running))) == 1
            params = {"key": "[1]"}
            assert (await running.http.delete("/v1/topics/px/sow", params=params)).is_success
            await running.publish({"k": "end", "g": 9, "v": 9})
            await stream.raw_until(b"end" if "grouping" not in options else b'"g":9')
            matched, summed = identity(running)
            assert matched == summed > 0


async def test_closed_sessions_are_counted_by_reason() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe() as stream:
            running.gateway.say_goodbye()
            await stream.rest()
        assert samples(running)["tidegate_sessions_closed_total{SHUTDOWN}"] == 1


async def test_a_topics_figures_go_with_it() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.http.delete("/v1/topics/px")
        assert not [name for name in samples(running) if name.endswith("{px}")]


async def test_failures_of_registered_functions_are_counted() -> None:
    async with running_gateway(mergers=["operator:floordiv"]) as running:
        merger = running.gateway.mergers.merger("operator:floordiv")
        assert merger is not None
        assert samples(running)["tidegate_merger_failures_total{operator:floordiv}"] == 0
        merger.function(1, 0)
        assert samples(running)["tidegate_merger_failures_total{operator:floordiv}"] == 1
