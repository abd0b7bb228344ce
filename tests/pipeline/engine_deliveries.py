"""What the engine delivers of recorded messages, under a clock that shows the recorded time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.support.manual_driver import ManualDriver, batches
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone, receipt_of
from tidegate.keys.merging import Merger


class Recorded(NamedTuple):
    """A message, or with no body the removal of a record, and why."""

    position: int
    time_ms: int
    key: str
    body: bytes | None
    removed: str = "deleted"


class Delivered(NamedTuple):
    """One row as it went out."""

    key: str
    first: int
    last: int
    messages: int
    value: bytes | None
    removed: str | None
    due_ns: int


def delivered(row: dict[str, Any]) -> Delivered:
    """A row of the pipeline (`DELIVERIES`) as one of the engine's."""
    value = None if row["value"] is None else bytes(row["value"])
    rest = (row["messages"], value, row["removed"], row["due_ns"])
    return Delivered(row["key"], row["first"], row["position"], *rest)


def engine_deliveries(
    messages: Iterable[Recorded],
    options: str,
    wanted: str = "",
    key: str = "[/k]",
    merger: Merger | None = None,
) -> list[Delivered]:
    """Rows of one subscriber who always takes at once; counts are asked for with `receipt`."""
    driver = _driver(options, wanted, key, merger)
    found: list[Delivered] = []
    for message in messages:
        time_ns = message.time_ms * 1_000_000
        found += _served(driver, time_ns)
        _publish(driver, message, time_ns)
    return found + _served(driver, None)


def batch_deliveries(
    batches: Iterable[tuple[int, list[Recorded]]],
    options: str,
    wanted: str = "",
    *,
    batch_is_interval: bool,
    merger: Merger | None = None,
) -> list[list[Delivered]]:
    """Rows of a caller who comes once a batch, at a time in ms; then those still held at its end.

    With `batch_is_interval` every batch has an interval to itself. Nothing is said of due times.
    """
    driver = _driver(options, wanted, "[/k]", merger)
    found: list[list[Delivered]] = []
    for now_ms, messages in batches:
        for message in messages:
            _publish(driver, message, now_ms * 1_000_000 if not batch_is_interval else driver.now)
        if batch_is_interval:
            found.append(_served(driver, None))
        else:
            driver.now = now_ms * 1_000_000
            driver.engine.advance(driver.now)
            found.append(_taken(driver, 0))
    found.append(_served(driver, None))
    return [[row._replace(due_ns=0) for row in each] for each in found]


def _driver(options: str, wanted: str, key: str, merger: Merger | None) -> ManualDriver:
    driver = ManualDriver()
    driver.topic(key=key, merge=merger)
    driver.session(messages_max=1 << 30)
    driver.subscribe(f"{options},receipt", wanted=wanted)
    driver.take()
    return driver


def _publish(driver: ManualDriver, message: Recorded, now_ns: int) -> None:
    driver.now = max(driver.now, now_ns)
    place = (message.position, message.body or b"", message.key, message.time_ms)
    frame = (
        Frame(*place) if message.body else Tombstone(*place, reason=RemovalReason(message.removed))
    )
    driver.engine.publish("px", [frame], driver.now)


def _served(driver: ManualDriver, until_ns: int | None) -> list[Delivered]:
    found: list[Delivered] = []
    while (due := driver.engine.next_deadline()) is not None:
        if until_ns is not None and due > until_ns:
            break
        driver.now = due
        driver.engine.advance(due)
        found += _taken(driver, due)
    return found


def _taken(driver: ManualDriver, due_ns: int) -> list[Delivered]:
    return [_delivered(row, due_ns) for batch in batches(driver.take()) for row in batch.frames]


def _delivered(row: Frame, due_ns: int) -> Delivered:
    count = receipt_of(row)
    reason = str(row.reason) if isinstance(row, Tombstone) else None
    value = None if row.removed else row.payload
    return Delivered(row.key, count.first, row.offset, count.messages, value, reason, due_ns)
