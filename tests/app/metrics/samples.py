"""What a scrape of a running gateway says, as numbers by name and labels."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateways import Running
from tidegate.app.http.routes.operations import families
from tidegate.app.metrics.exposition import exposition


async def page(running: Running) -> bytes:
    """The text of one scrape."""
    return exposition(await families(running.gateway, running.server.figures))


async def samples(running: Running) -> dict[str, float]:
    """Samples by name, with the values of their labels in braces, as a reader of the text."""
    return by_name(text_string_to_metric_families((await page(running)).decode()))


async def figures(running: Running) -> dict[str, float]:
    """As `samples`, without the text, which takes far longer to read than to write."""
    return by_name(await families(running.gateway, running.server.figures))


def by_name(found: Iterable[Metric]) -> dict[str, float]:
    """Samples by name, with the values of their labels in braces."""
    return {
        sample.name + "".join(f"{{{label[1]}}}" for label in sorted(sample.labels.items())): (
            sample.value
        )
        for family in found
        for sample in family.samples
    }
