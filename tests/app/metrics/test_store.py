"""Figures of the store."""

from __future__ import annotations

from tests.app.metrics.samples import samples
from tests.support.gateways import running_gateway
from tidegate.app.http.counters import Counters
from tidegate.app.http.problems import Problem
from tidegate.app.metrics.store import store_families
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Appended, Publication, StoreFigures


class Measured(MemoryStore):
    """A store that tells everything."""

    def figures(self) -> StoreFigures:
        return StoreFigures(3, queued=2, size_bytes=4096)


def test_what_a_store_tells_is_a_family_each() -> None:
    told = {
        family.name: family.samples[0].value
        for family in store_families(Measured(), Counters(checkpointed_ms=5_000))
        if family.type != "histogram"
    }
    assert told == {
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
    raise Problem("bus-unavailable", "The store is out.")
