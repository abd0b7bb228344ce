"""What event time with a watermark means, one message after the other: the order of taking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.pipeline.engine_deliveries import Delivered, Recorded, engine_deliveries
from tidegate.keys.merging import Merger


class Timed(NamedTuple):
    """A message with a time of its own, or the removal of a record, which has none."""

    position: int
    own_ms: int | None
    key: str
    body: bytes | None
    removed: str = "deleted"


def reordered(messages: Iterable[Timed], lateness_ms: int) -> list[Recorded]:
    """The messages at their effective times, in the order in which they are taken."""
    found: list[Recorded] = []
    greatest_ms: int | None = None
    before: dict[str, int] = {}
    for position, own_ms, key, body, removed in messages:
        if own_ms is not None:
            greatest_ms = own_ms if greatest_ms is None else max(greatest_ms, own_ms)
        if greatest_ms is None:
            continue  # nothing is there that could be removed
        own_ms = greatest_ms if own_ms is None else own_ms
        time_ms = max(own_ms, greatest_ms - lateness_ms, before.get(key, own_ms))
        before[key] = time_ms
        found.append(Recorded(position, time_ms, key, body, removed))
    return sorted(found, key=lambda one: (one.time_ms, one.position))


def event_deliveries(
    messages: Sequence[Timed],
    lateness_ms: int,
    options: str,
    wanted: str = "",
    key: str = "[/k]",
    merger: Merger | None = None,
) -> list[Delivered]:
    """What the engine delivers on that timeline; it numbers them as they are taken."""
    taken = reordered(messages, lateness_ms)
    numbered = [one._replace(position=at) for at, one in enumerate(taken, 1)]
    published = {at: one.position for at, one in enumerate(taken, 1)}
    return [
        row._replace(first=published[row.first], last=published[row.last])
        for row in engine_deliveries(numbered, options, wanted, key, merger)
    ]
