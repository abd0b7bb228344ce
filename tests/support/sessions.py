"""Sessions of many subscriptions as a client has them: to open, read and follow one."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from tests.support.gateways import Remote, Stream


async def opened(remote: Remote, **document: object) -> str:
    """A new session's id."""
    answer = await remote.http.post("/v1/sessions", json=document)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert told["events"] == f"/v1/sessions/{told['session']}/events"
    session: str = told["session"]
    return session


async def subscribed(remote: Remote, session: str, **document: object) -> dict[str, Any]:
    """What a new subscription was granted."""
    answer = await remote.http.post(f"/v1/sessions/{session}/subscriptions", json=document)
    assert answer.status_code == 201, answer.text
    granted: dict[str, Any] = answer.json()
    return granted


@contextlib.asynccontextmanager
async def attached(remote: Remote, session: str, last_id: str = "") -> AsyncIterator[Stream]:
    """A session's stream that has said `hello`."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    path = f"/v1/sessions/{session}/events"
    async with remote.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, (await answer.aread()).decode()
        stream = Stream(answer)
        hello = await stream.next()
        assert hello.name == "hello"
        remote.hellos.append(json.loads(hello.text))
        stream.hello_id = hello.id
        yield stream


class Follower:
    """Takes a session's batches apart, subscription by subscription."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.topics: dict[str, str] = {}
        self.resumed: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []

    async def follow(self, stream: Stream, **until: int) -> None:
        """Take what comes until each subscription has had so many rows in all."""
        while any(len(self.rows[name]) < count for name, count in until.items()):
            event = await stream.next()
            told = json.loads(event.text)
            if event.name == "message":
                self.rows[told["sub"]] += told["rows"]
                self.topics[told["sub"]] = told["topic"]
            elif event.name == "resumed":
                self.resumed.append(told)
            elif event.name == "unsubscribed":
                self.ended.append(told)

    def values(self, name: str) -> list[Any]:
        """The values of one subscription's rows."""
        return [row["value"] for row in self.rows[name]]
