"""Faults of what a sink is given: batches again, cut otherwise, by another run, and older ones."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from tests.faults.setups.gateway import Setup
from tests.faults.setups.pipeline import NEWEST, judge, sunk
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.connection import gateway_at
from tidegate.pipeline.errors import GatewayRefused
from tidegate.pipeline.sinks.sink import Batch, BatchResult
from tidegate.pipeline.sinks.topic import Staging, TopicWriter

ROWS, BATCHES = 40, 6
QUERY = "0a"


async def batches_again(setup: Setup, short: bool) -> None:
    """Every batch comes twice, the second time in other parts; then all of them, by a newer run."""
    letters = str(setup.folder / "dead")
    writer = TopicWriter(setup.gateway.address, NEWEST, "s", {"key": ["/k"]}, letters)
    await asyncio.to_thread(_write_all, writer, setup)
    setup.findings += judge(await sunk(setup.gateway.address), ROWS * BATCHES)


def _write_all(writer: TopicWriter, setup: Setup) -> None:
    writer.prepare()
    for number in range(BATCHES):
        result = _write(writer, Batch(number, 1, QUERY), 1)
        setup.expect(result.published == ROWS, f"batch {number} was not taken: {result}")
        result = _write(writer, Batch(number, 1, QUERY), 4)
        setup.expect(result.repeated == ROWS, f"batch {number} was taken again: {result}")
    numbers = [*range(BATCHES)]
    setup.chance.shuffle(numbers)
    for number in numbers:
        result = _write(writer, Batch(number, 2, QUERY), 3)
        setup.expect(result.repeated == ROWS, f"older batch {number} was taken: {result}")
    try:
        _write(writer, Batch(BATCHES, 1, QUERY), 1)
    except GatewayRefused as error:
        setup.expect("[producer-fenced" in str(error), f"an older run got {error}")
    else:
        setup.expect(False, "an older run was let in")
    setup.figures.append(f"{BATCHES} batches came {BATCHES * 3} times")


def _write(writer: TopicWriter, batch: Batch, parts: int) -> BatchResult:
    """A batch of numbered messages, staged by so many attempts."""
    first, size, reports = batch.number * ROWS, -(-ROWS // parts), []
    with gateway_at(writer.gateway) as gateway:
        for attempt in range(parts):
            numbers = range(first, first + ROWS)[attempt * size : (attempt + 1) * size]
            rows = [{"value": b'{"k":%d,"n":%d}' % (n, n), "messages": 1} for n in numbers]
            staging = Staging(writer, gateway, batch, attempt)
            staging.take(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SENT)))
            staging.end()
            reports.append(staging.report())
    return writer.commit(reports, batch)
