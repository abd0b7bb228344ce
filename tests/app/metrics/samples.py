"""What a scrape of a running gateway says, as numbers by name and labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateways import Running
from tidegate.app.metrics.exposition import exposition
from tidegate.app.routes.operations import families


async def page(running: Running) -> bytes:
    """The text of one scrape."""
    return exposition(await families(running.gateway, running.server.figures))


async def samples(running: Running) -> dict[str, float]:
    """Samples by name, with the values of their labels in braces."""
    text = (await page(running)).decode()
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
