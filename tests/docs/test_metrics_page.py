"""docs/metrics.md says what /metrics has."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateways import running_gateway
from tidegate.app.http.routes.operations import families
from tidegate.app.metrics.exposition import exposition
from tidegate.app.metrics.page import metrics_page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


async def test_the_page_is_the_one_the_metrics_write() -> None:
    assert PAGE.read_text("utf-8") == await metrics_page(), (
        "write it anew: python -m tidegate.app.metrics.page > docs/metrics.md"
    )


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
    assert {name for name, _ in rows - found} == {
        "tidegate_checkpoint_timestamp_seconds",
        "tidegate_store_size_bytes",
    }, "what only a store that keeps things has"
