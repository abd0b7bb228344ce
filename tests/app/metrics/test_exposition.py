"""Metrics: Prometheus can read them, and they add up."""

from __future__ import annotations

import pytest

from tests.app.metrics.samples import figures, samples
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.rules import rule
from tidegate.app.http.routes.operations import families


async def offered_and_sums(running: Running, topic: str = "px") -> tuple[float, float, float]:
    """The messages offered to a topic, and two sums that must equal them: by match, by outcome."""
    found = await figures(running)

    def figure(name: str) -> float:
        return found[f"tidegate_topic_{name}{{{topic}}}"]

    dropped = sum(
        value
        for name, value in found.items()
        if name.startswith("tidegate_topic_dropped_total") and name.endswith(f"{{{topic}}}")
    )
    parts = ("delivered_total", "conflated", "filtered_total", "waiting")
    matched = figure("matched_total") + figure("filtered_total")
    return figure("offered_total"), matched, dropped + sum(map(figure, parts))


async def test_an_idle_gateway_has_metrics() -> None:
    async with running_gateway() as running:
        found = await samples(running)
        assert found["tidegate_sessions{attached}"] == 0
        assert found["tidegate_topics"] == 3  # those of the gateway itself
        assert found["tidegate_flushes_total"] == 0
        assert found["tidegate_ready"] == 1
        assert found["process_open_fds"] > 0


async def test_what_was_offered_is_delivered_conflated_filtered_dropped_or_waits() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with (
            running.subscribe("conflation=50ms", command="subscribe") as quick,
            running.subscribe("conflation=1h", command="subscribe", filter="/k = 1"),
        ):
            await running.publish({"k": 1}, {"k": 1}, {"k": 2})
            await quick.values(2)
            found = await samples(running)
            assert found["tidegate_topic_messages_in_total{px}"] == 3
            assert found["tidegate_topic_keys{px}"] == 2
            assert found["tidegate_topic_offered_total{px}"] == 6
            assert found["tidegate_topic_filtered_total{px}"] == 1
            assert found["tidegate_topic_matched_total{px}"] == 5
            assert found["tidegate_topic_delivered_total{px}"] == 2
            assert found["tidegate_topic_conflated{px}"] == 2
            assert found["tidegate_topic_waiting{px}"] == 1
            assert found["tidegate_topic_subscriptions{px}"] == 2
            assert found["tidegate_topic_journal_messages{px}"] == 3
            assert found["tidegate_sessions{attached}"] == 2
            assert await offered_and_sums(running) == (6, 6, 6)
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "both leave")
        found = await samples(running)
        assert found["tidegate_topic_dropped_total{GONE}{px}"] == 1
        assert found["tidegate_topic_waiting{px}"] == 0
        assert await offered_and_sums(running) == (6, 6, 6)


REQUESTS = [
    ("conflation=20ms,receipt", {"format": "batch"}),
    ("conflation=20ms,oof", {"filter": "/v > 3"}),
    ("conflation=20ms,pace=key", {"command": "sow_and_delta_subscribe"}),
    ("conflation=20ms,oof,top_n=2", {"order_by": "/v DESC"}),
    ("conflation=20ms,never=[/v = 5]", {}),
    ("conflation=20ms,reduce=[/v:sum]", {"command": "subscribe"}),
    ("oof,projection=[/g,SUM(/v) AS /v],grouping=[/g]", {}),
    ("conflation=20ms,projection=[/g,SUM(/v) AS /v],grouping=[/g]", {}),
    ("no_empties", {"command": "sow_and_delta_subscribe"}),
]


@pytest.mark.parametrize(("options", "query"), REQUESTS)
async def test_the_sums_are_equal_with_every_option(options: str, query: dict[str, str]) -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe(options, **query) as stream:
            for n in range(15):
                await running.publish({"k": n % 3, "g": n % 2, "v": n % 7})
                assert len(set(await offered_and_sums(running))) == 1
            params = {"key": "[1]"}
            assert (await running.http.delete("/v1/topics/px/sow", params=params)).is_success
            await running.publish({"k": "end", "g": 9, "v": 9})
            await stream.raw_until(b"end" if "grouping" not in options else b'"g":9')
            offered, *summed = await offered_and_sums(running)
            assert summed == [offered, offered]
            assert offered > 0


async def test_counters_never_fall_when_sessions_end() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1h", filter="/k = 1"):
            await running.publish({"k": 1}, {"k": 1}, {"k": 2})
            before = await samples(running)
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "it leaves")
        after = await samples(running)
        fallen = [name for name in before if "_total" in name and after[name] < before[name]]
        assert fallen == []


async def test_the_figures_of_a_topic_are_removed_with_it() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.http.delete("/v1/topics/px")
        assert not [name for name in await samples(running) if "{px}" in name]


async def test_no_label_grows_with_sessions_or_keys() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=20ms"):
            await running.publish(*({"k": n} for n in range(50)))
            made = await families(running.gateway, running.server.figures)
        labels = {name for family in made for sample in family.samples for name in sample.labels}
        assert labels <= {"topic", "reason", "of", "state", "mode", "direction", "function", "le"}


@rule("account-4")
async def test_a_scrape_does_not_change_what_is_sent() -> None:
    """With and without scrapes, the same rows are sent."""
    shown = []
    for is_watched in (False, True):
        async with running_gateway() as running:
            await running.topic()
            # Long enough for a busy machine to publish and scrape twice within one interval.
            options = "conflation=3s,projection=[/g,SUM(/v) AS /v],grouping=[/g]"
            async with running.subscribe(options, command="sow_and_subscribe") as stream:
                for group, value in (("X", 1), ("Y", 2)):
                    await running.publish({"k": 1, "g": group, "v": value})
                    if is_watched:
                        await samples(running)
                        await running.http.get("/v1/sessions")
                        await running.http.get("/v1/lanes")
                shown.append(await stream.raw_until(b'"g":"Y"'))
    assert [b'"g":"X"' in text for text in shown] == [False, False]
