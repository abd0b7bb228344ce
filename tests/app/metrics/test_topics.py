"""However many topics there are, a page of metrics is small and complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.app.metrics.samples import page, samples
from tests.support.gateways import Running, running_gateway
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.metrics.topics import OTHERS, TopicTable, topic_families, topic_table


async def test_the_first_by_name_have_labels_and_the_others_are_one() -> None:
    async with running_gateway(metrics_topics_max=2) as running:
        for name in ("d", "b", "c", "a"):
            await running.topic(name)
            await running.publish({"k": 1}, topic=name)
        found = await samples(running)
        sums = {
            name.split("{")[1][:-1]: value
            for name, value in found.items()
            if name.startswith("tidegate_topic_messages_in_total")
        }
        assert list(sums) == ["a", "b", OTHERS]
        assert sums["a"] == sums["b"] == 1
        assert sums[OTHERS] >= 2
        assert found["tidegate_topics"] == 7


@pytest.fixture
async def crowded(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """A gateway of as many topics as the test's parameter says."""
    async with running_gateway() as running:
        plain = TopicDefinition.parse(b"{}")
        for n in range(request.param):
            await running.gateway.catalog.put(f"t{n}", plain)
        yield running


@pytest.mark.parametrize("crowded", [300], indirect=True)
async def test_other_tasks_run_between_the_topics_of_a_scrape(
    crowded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.app.metrics.topics.BUSY_S_MAX", -1.0)
    iterations = 0
    scrape = asyncio.ensure_future(topic_table(crowded.gateway.catalog, crowded.gateway.driver, 5))
    while not scrape.done():
        await asyncio.sleep(0)
        iterations += 1
    assert (len(scrape.result().rows), scrape.result().topics) == (6, 303)
    assert iterations >= 300


@pytest.mark.nightly
@pytest.mark.parametrize("crowded", [10_000], indirect=True)
async def test_ten_thousand_topics_make_a_small_page_and_hold_nobody_up(crowded: Running) -> None:
    # CPU time of the loop's thread between two iterations: another thread makes the text.
    longest, before = 0.0, time.thread_time()
    scrape = asyncio.ensure_future(page(crowded))
    while not scrape.done():
        await asyncio.sleep(0)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    assert len(scrape.result()) < 500_000
    assert longest < 0.5


async def test_a_topic_that_is_deleted_meanwhile_is_passed_over() -> None:
    async with running_gateway() as running:
        await running.topic("a")
        running.gateway.driver.engine.drop_topic("a")
        catalog, driver = running.gateway.catalog, running.gateway.driver
        assert "a" not in (await topic_table(catalog, driver, 10)).rows


def test_a_page_without_topics_has_the_families() -> None:
    names = [family.name for family in topic_families(TopicTable())]
    assert len(names) == len(set(names)) > 10
