"""docs/metrics.md says what /metrics has."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dev import ROOT
from tests.app.metrics.samples import figures
from tests.docs.metrics_page import SHARED, metrics_page
from tests.support.buses import BusServer, gateways, has_topic
from tests.support.gateways import eventually, running_gateway
from tidegate.app.http.routes.operations import families
from tidegate.app.metrics.exposition import exposition
from tidegate.pipeline.operations.metrics import FIGURES, PREFIX

PAGE = ROOT / "docs" / "metrics.md"
STATIC = ROOT / "app" / "static"


async def test_the_page_is_the_one_the_metrics_write() -> None:
    assert PAGE.read_text("utf-8") == await metrics_page(), (
        "write it anew: python -m tests.docs.metrics_page > docs/metrics.md"
    )


async def test_a_family_has_a_row_with_its_samples_name_its_labels_and_its_meaning() -> None:
    rows = (await metrics_page()).splitlines()
    assert (
        "| `tidegate_topic_dropped_total` | counter | `topic`, `reason` | gateway "
        "| Rows that still waited when their subscription ended, by the reason of its end. |"
    ) in rows
    assert any(row.startswith("| `tidegate_publish_seconds` | histogram | `le` |") for row in rows)


async def test_every_figure_of_a_pipeline_is_on_the_page() -> None:
    page = await metrics_page()
    rows = re.findall(rf"^\| `({PREFIX}\w+)` \| (\w+) \| `query` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [
        (
            PREFIX + figure.name + ("_total" if figure.rises else ""),
            "counter" if figure.rises else "gauge",
            figure.meaning,
        )
        for figure in FIGURES
    ]


async def test_everything_in_a_scrape_is_on_the_page() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE))
    async with running_gateway() as running:
        await running.topic()
        text = exposition(await families(running.gateway, running.server.figures)).decode()
    found = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type)
        for family in text_string_to_metric_families(text)
    }
    assert found - rows == set()
    missing = {name for name, _ in rows - found if not name.startswith(PREFIX)}
    assert missing == {
        "tidegate_checkpoint_timestamp_seconds",
        "tidegate_store_size_bytes",
    }, "what only a store that keeps things has"


async def test_shared_families_are_those_of_the_product() -> None:
    page = await metrics_page()
    shared = re.findall(r"^\| `(\w+?)(?:_total)?` \|[^|]*\|[^|]*\| shared \|", page, re.MULTILINE)
    assert set(shared) == SHARED
    console = (STATIC / "console" / "kit" / "metrics.js").read_text("utf-8")
    names = re.search(r"SHARED = new Set\(\[(.*?)\]", console)
    assert names
    found = {f"tidegate_topic_{name}" for name in re.findall(r'"(\w+?)(?:_total)?"', names[1])}
    assert found == SHARED - {"tidegate_topics"}


@pytest.mark.redis
async def test_each_gateway_counts_all_that_is_shared_and_only_its_own_of_the_rest(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with one.subscribe("conflation=1h"):
            await one.publish({"k": 1, "v": 1}, {"k": 2, "v": 1})
            await other.publish({"k": 2, "v": 2})
            assert (await one.http.delete("/v1/topics/px/sow?key=[1]")).status_code == 200
            engines = [each.gateway.driver.engine for each in (one, other)]
            await eventually(
                lambda: all(it.topic_stats("px").messages_in == 4 for it in engines),
                "both have read all",
            )
            here, there = [await figures(each) for each in (one, other)]
    compared = {
        name: (here[name], there[name])
        for name in here
        if name == "tidegate_topics" or "{px}" in name
    }
    shared = {f"{name}{end}" for name in SHARED for end in ("", "{px}", "_total{px}")}
    alike = {name: values for name, values in compared.items() if name in shared}
    assert len(alike) == len(SHARED)
    assert all(mine == theirs > 0 for mine, theirs in alike.values()), alike
    own = {name: values for name, values in compared.items() if name not in shared}
    assert own["tidegate_topic_offered_total{px}"][0] > 0
    own.pop("tidegate_topic_boards{px}")  # each has the board of the topic itself
    assert all(theirs == 0 for _, theirs in own.values()), own
