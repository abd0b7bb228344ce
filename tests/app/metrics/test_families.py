"""Families are written as Prometheus reads them, and count what happens."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from tests.app.metrics.samples import page, samples
from tests.support.gateways import eventually, running_gateway
from tidegate.app.figures import Counters, Histogram
from tidegate.app.metrics.families import (
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    store_families,
)
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Appended, Publication, StoreFigures


def test_a_family_has_the_prefix_its_kind_and_its_samples() -> None:
    seen = Histogram((0.5, 1.0))
    seen.note(0.7)
    made = [
        gauge("a", "A.", 1),
        counter("b", "B.", 2),
        gauges("c", "C.", "of", {"x": 3}),
        counters("d", "D.", "reason", {"Y": 4}),
        histogram("e_seconds", "E.", seen),
    ]
    shown = [(f.name, f.type, [(s.name, s.labels, s.value) for s in f.samples]) for f in made]
    assert shown == [
        ("tidegate_a", "gauge", [("tidegate_a", {}, 1)]),
        ("tidegate_b", "counter", [("tidegate_b_total", {}, 2)]),
        ("tidegate_c", "gauge", [("tidegate_c", {"of": "x"}, 3)]),
        ("tidegate_d", "counter", [("tidegate_d_total", {"reason": "Y"}, 4)]),
        (
            "tidegate_e_seconds",
            "histogram",
            [
                ("tidegate_e_seconds_bucket", {"le": "0.5"}, 0),
                ("tidegate_e_seconds_bucket", {"le": "1.0"}, 1),
                ("tidegate_e_seconds_bucket", {"le": "+Inf"}, 1),
                ("tidegate_e_seconds_count", {}, 1),
                ("tidegate_e_seconds_sum", {}, 0.7),
            ],
        ),
    ]


async def test_every_family_has_a_name_of_its_own_and_a_meaning() -> None:
    async with running_gateway() as running:
        text = (await page(running)).decode()
    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    assert all(family.documentation for family in found)


async def test_flushes_and_publishes_are_timed() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=20ms", command="subscribe") as stream:
            await running.publish({"k": 1})
            await stream.values(1)
        found = await samples(running)
        assert found["tidegate_flush_lateness_seconds_count"] >= 1
        assert found["tidegate_publish_seconds_count"] >= 1
        assert found["tidegate_publish_seconds_sum"] < 1
        assert found["tidegate_flushes_total"] >= 1


async def test_readiness_and_limits_are_exposed() -> None:
    async with running_gateway(sessions_max=7) as running:
        assert (await samples(running))["tidegate_limit{sessions}"] == 7
        running.gateway.say_goodbye()
        assert (await samples(running))["tidegate_ready"] == 0


async def test_failures_of_registered_functions_are_counted() -> None:
    async with running_gateway(mergers=["operator:floordiv"]) as running:
        merger = running.gateway.mergers.merger("operator:floordiv")
        assert merger is not None
        assert (await samples(running))["tidegate_merger_failures_total{operator:floordiv}"] == 0
        merger.merged(b"1", b"0")
        assert (await samples(running))["tidegate_merger_failures_total{operator:floordiv}"] == 1


async def test_tasks_come_and_go() -> None:
    async with running_gateway() as running:
        await running.topic()
        # The audit log tells of the topic a second later, and writing takes a task.
        await running.gateway.audit.write()
        audit = running.gateway.driver.engine.topic("tidegate.audit")
        await eventually(lambda: audit.head == 1, "the audit log is written")
        await asyncio.sleep(0.1)
        before = (await samples(running))["tidegate_tasks"]
        task = asyncio.create_task(asyncio.Event().wait())
        assert (await samples(running))["tidegate_tasks"] == before + 1
        task.cancel()
        async with running.subscribe():
            found = (await samples(running))["tidegate_tasks"]
            assert found == before, "a stream that waits has no task"
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "it leaves")


async def test_closed_sessions_are_counted_by_reason() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe() as stream:
            async with running.subscribe():
                pass
            await eventually(lambda: running.gateway.driver.figures.left == 1, "one leaves")
            running.gateway.say_goodbye()
            await stream.rest()
        found = await samples(running)
        assert found["tidegate_sessions_closed_total{SHUTDOWN}"] == 1
        assert found["tidegate_sessions_closed_total{GONE}"] == 1


async def test_sessions_are_counted_by_state() -> None:
    async with running_gateway() as running:
        await running.topic()
        wanted = {"subscriptions": [{"topic": "px"}]}
        assert (await running.http.post("/v1/sessions", json=wanted)).is_success
        async with running.subscribe():
            found = await samples(running)
        assert found["tidegate_sessions{away}"] == 1
        assert found["tidegate_sessions{attached}"] == 1
        assert found["tidegate_sessions{ended}"] == 0


async def test_ends_of_subscriptions_and_resumes_are_counted() -> None:
    async with running_gateway() as running:
        await running.topic()
        first = (await running.publish({"k": 1}))["first"]
        async with running.subscribe("conflation=20ms", last_id=first) as stream:
            assert (await running.http.delete("/v1/topics/px")).is_success
            await stream.rest()
        found = await samples(running)
        assert found["tidegate_resumed_total{changes}"] == 1
        assert found["tidegate_unsubscribed_total{REMOVED}"] == 1


async def test_writes_are_timed_and_measured() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=20ms", command="subscribe") as stream:
            await running.publish({"k": 1})
            await stream.values(1)
            found = await samples(running)
        assert found["tidegate_stream_write_seconds_count"] >= 1
        assert found["tidegate_stream_write_bytes_sum"] >= len('data: {"k":1}')
        assert found["tidegate_unacknowledged_bytes"] >= 0


async def test_full_queues_are_counted_by_what_became_of_them() -> None:
    async with running_gateway(queue_messages_max=10) as running:
        await running.topic()
        async with running.frozen("conflation=none"):
            text = "x" * 60_000
            for n in range(40):
                await running.publish({"k": n % 3, "text": text})
            found = await samples(running)
        assert found["tidegate_queues_forced_total"] + found["tidegate_queues_background_total"] > 0
        assert found["tidegate_unacknowledged_bytes"] > 0


class Measured(MemoryStore):
    """A store that tells everything."""

    def figures(self) -> StoreFigures:
        return StoreFigures(3, queued=2, size_bytes=4096)


def test_each_figure_of_a_store_is_a_family() -> None:
    shown = {
        family.name: family.samples[0].value
        for family in store_families(Measured(), Counters(checkpointed_ms=5_000))
        if family.type != "histogram"
    }
    assert shown == {
        "tidegate_store_failures": 0,
        "tidegate_store_commits": 3,
        "tidegate_store_queued": 2,
        "tidegate_store_size_bytes": 4096,
        "tidegate_checkpoint_timestamp_seconds": 5,
    }


def test_what_does_not_apply_is_left_out() -> None:
    names = {family.name for family in store_families(MemoryStore(), Counters())}
    assert "tidegate_store_size_bytes" not in names
    assert "tidegate_store_commits" in names


async def test_appends_are_timed_and_failures_counted() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        running.gateway.store.append = _refused  # type: ignore[method-assign]  # a store that is out
        answer = await running.http.post("/v1/topics/px/messages", json={"k": 2})
        assert answer.status_code == 503
        found = await samples(running)
    assert found["tidegate_store_append_seconds_count"] >= 2
    assert found["tidegate_store_failures_total"] >= 1


async def _refused(topic: str, publication: Publication) -> Appended:
    raise Unavailable("The store is out.")


async def test_connections_are_counted() -> None:
    async with running_gateway(connections_max=50) as running:
        await running.topic()
        async with running.subscribe():
            running.server.figures.refused_by["address"] += 2
            running.server.figures.given_up += 1
            found = await samples(running)
    assert found["tidegate_connections"] >= 1
    assert found["tidegate_connections_max"] == 50
    assert found["tidegate_connections_refused_total{address}"] == 2
    assert found["tidegate_connections_refused_total{connections}"] == 0
    assert found["tidegate_connections_given_up_total"] == 1
    assert "tidegate_event_loop_lag_seconds_count" in found
