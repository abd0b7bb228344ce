"""docs/metrics.md says what /metrics has."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.docs.metrics_page import metrics_page
from tests.support.gateways import running_gateway
from tidegate.app.http.routes.operations import families
from tidegate.app.metrics.exposition import exposition
from tidegate.pipeline.operations.metrics import FIGURES, PREFIX

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


async def test_the_page_is_the_one_the_metrics_write() -> None:
    assert PAGE.read_text("utf-8") == await metrics_page(), (
        "write it anew: python -m tests.docs.metrics_page > docs/metrics.md"
    )


async def test_a_family_has_a_row_with_its_samples_name_its_labels_and_its_meaning() -> None:
    rows = (await metrics_page()).splitlines()
    assert (
        "| `tidegate_topic_dropped_total` | counter | `topic`, `reason` "
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
