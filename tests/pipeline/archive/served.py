"""A real gateway in a thread, for stories that have one end in it and another in Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec

from tests.support.deadlines import HANGS_S
from tests.support.servers import edge_settings, running_server
from tidegate.app.http.application import create_app


class Served:
    """A gateway's address, and what stories do there."""

    def __init__(self, http: httpx2.Client) -> None:
        self.address = str(http.base_url)
        self._http = http

    def define(self, topic: str, **fields: Any) -> None:
        """Make a topic."""
        self._http.put(f"/v1/topics/{topic}", json=fields).raise_for_status()

    def change(self, topic: str, **fields: Any) -> None:
        """Change a topic's definition."""
        self._http.patch(f"/v1/topics/{topic}", json=fields).raise_for_status()

    def records(self, topic: str) -> dict[str, Any]:
        """The state of the world: values by the text of their key."""
        answer = self._http.get(f"/v1/topics/{topic}/sow", params={"format": "envelope"})
        rows = map(msgspec.json.decode, answer.raise_for_status().content.splitlines())
        return {msgspec.json.encode(row["key"]).decode(): row["value"] for row in rows}

    def drop(self, topic: str) -> None:
        """Delete a topic."""
        self._http.delete(f"/v1/topics/{topic}").raise_for_status()

    def publish(self, topic: str, *messages: dict[str, Any]) -> None:
        """Publish messages in one request."""
        body = b"\n".join(map(msgspec.json.encode, messages))
        self._http.post(
            f"/v1/topics/{topic}/messages",
            content=body,
            headers={"Content-Type": "application/x-ndjson"},
        ).raise_for_status()

    def post(self, topic: str, body: bytes, media_type: str) -> None:
        """Publish a message as it is."""
        path, headers = f"/v1/topics/{topic}/messages", {"Content-Type": media_type}
        self._http.post(path, content=body, headers=headers).raise_for_status()

    def remove(self, topic: str, key_text: str) -> None:
        """Delete a record."""
        path = f"/v1/topics/{topic}/sow"
        self._http.delete(path, params={"key": key_text}).raise_for_status()

    def journal(self, topic: str) -> Sequence[dict[str, Any]]:
        """All that the journal holds."""
        path = f"/v1/topics/{topic}/messages"
        answer = self._http.get(path, params={"limit": 100_000}).raise_for_status()
        return [msgspec.json.decode(line) for line in answer.content.splitlines()]

    def values(self, topic: str) -> list[Any]:
        """Values of the journal; of a removal its key's text."""
        return [
            msgspec.json.encode(line["key"]).decode() if "reason" in line else line["value"]
            for line in self.journal(topic)
        ]

    def epoch(self, topic: str) -> str:
        """The epoch of a topic."""
        found: str = self._http.get(f"/v1/topics/{topic}").raise_for_status().json()["epoch"]
        return found


@contextmanager
def gateway(**settings: Any) -> Iterator[Served]:
    """A gateway that keeps nothing, on a free port, stopped with the block."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        given = edge_settings(**settings)
        async with running_server(create_app(given), given) as address:
            found[:] = [address, asyncio.get_running_loop()]
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(HANGS_S), "the gateway did not start"
    try:
        with httpx2.Client(base_url=found[0], trust_env=False) as http:
            yield Served(http)
    finally:
        found[1].call_soon_threadsafe(stop.set)
        thread.join()
