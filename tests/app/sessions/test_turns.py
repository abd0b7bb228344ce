"""A stream on a fast line gives others their turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.gateways import running_gateway
from tidegate.app.delivery import scheduler
from tidegate.app.sessions import event_writer, socket_stream
from tidegate.app.sessions.event_writer import EventWriter

KEYS = 60
TEXT_BYTES = 1_000


@contextlib.asynccontextmanager
async def turns_counted() -> AsyncIterator[list[int]]:
    """The number of turns that the loop has had, as the one item of a list."""
    turns = [0]

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield turns
    finally:
        counting.cancel()


async def test_a_snapshot_that_the_line_takes_at_once_is_written_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_writer, "TAKE_BYTES_MAX", TEXT_BYTES)
    for module in (socket_stream, scheduler):
        monkeypatch.setattr(module, "TURN_S", -1.0)  # as if each text took longer
    written: list[int] = []
    next_text = EventWriter.next
    async with running_gateway() as running, turns_counted() as turns:

        def noted(writer: EventWriter, now_s: float) -> bytes:
            text = next_text(writer, now_s)
            if text:
                written.append(turns[0])
            return text

        monkeypatch.setattr(EventWriter, "next", noted)
        await running.topic()
        for key in range(KEYS):
            await running.publish({"k": key, "v": "x" * 200})
        async with running.subscribe(command="sow") as stream:
            events = await stream.rest()
    assert sum(event.name == "message" for event in events) == KEYS
    assert len(written) > KEYS * 200 / TEXT_BYTES / 2
    assert len(set(written)) == len(written), "two texts in one turn"
