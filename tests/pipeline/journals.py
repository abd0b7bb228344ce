"""A real HTTP server with the journal side of a gateway, in memory, that tests can look into.

It speaks what a stream needs, as the contract has it: topics, the journal, stages and commits.
Unlike a gateway it can be made to fail, to hold an answer back, and to trim a journal.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@dataclass
class Publication:
    """One accepted commit."""

    producer: str
    run: int
    sequence: int
    stages: list[str]
    values: list[bytes]


@dataclass
class Topic:
    """A topic's definition and everything published to it."""

    definition: dict[str, Any]
    epoch: str = "e1"
    continues: dict[str, int] = field(default_factory=dict)
    values: list[bytes] = field(default_factory=list)
    trimmed: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    stages: dict[str, list[bytes]] = field(default_factory=dict)
    publications: list[Publication] = field(default_factory=list)
    repeats: int = 0
    records: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)

    def bookmark(self, position: int) -> str:
        return f"{self.epoch}-{position}"


class Removed(bytes):
    """Of a record, by its key, among the values of a topic; and why."""

    reason: str

    def __new__(cls, record: bytes, reason: str = "deleted") -> Self:
        """By default it was deleted."""
        removed = super().__new__(cls, record)
        removed.reason = reason
        return removed


class Journals:
    """The server's state; tests publish and look at it directly."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.address = ""
        self.refusals: list[int] = []
        self.lists = 0
        self.gives_epoch = True
        self.hold_after: int | None = None
        self.held = threading.Event()

    def topic(self, name: str, lines: list[bytes] | None = None, **definition: Any) -> Topic:
        """Create a topic, or add lines to it."""
        topic = self.topics.setdefault(name, Topic({"key": [], "source": None, **definition}))
        topic.values += lines or []
        return topic

    async def put(self, request: Request) -> Response:
        name = request.path_params["topic"]
        created = name not in self.topics
        self.topic(name, **await request.json())
        return JSONResponse({"topic": name}, 201 if created else 200)

    async def describe(self, request: Request) -> Response:
        topic = self.topics.get(request.path_params["topic"])
        if topic is None:
            return problem(404, "topic-unknown")
        last = len(topic.values)
        first = topic.trimmed + 1 if last > topic.trimmed else None
        ends = {
            "first": topic.bookmark(first) if first else None,
            "last": topic.bookmark(last) if last else None,
            "messages": last - topic.trimmed,
        }
        epoch = {"epoch": topic.epoch, "continues": topic.continues} if self.gives_epoch else {}
        return JSONResponse({**topic.definition, **epoch, "journal": ends})

    async def listed(self, request: Request) -> Response:
        self.lists += 1
        after, limit = request.query_params.get("after", ""), int(request.query_params["limit"])
        names = sorted(name for name in self.topics if name > after)
        answer = [{"topic": name, **self.topics[name].definition} for name in names[:limit]]
        etag = f'W/"{hash(json.dumps(answer))}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304)
        more = f"/v1/topics?limit={limit}&after={names[limit - 1]}" if names[limit:] else None
        return JSONResponse({"topics": answer, "next": more}, headers={"ETag": etag})

    async def records(self, request: Request) -> Response:
        topic = self.topics[request.path_params["topic"]]
        rows = topic.records.items()
        lines = [
            b'{"key":%s,"bookmark":"%s","value":%s}\n'
            % (record, topic.bookmark(at).encode(), value)
            for record, (at, value) in rows
        ]
        return Response(b"".join(lines), media_type="application/x-ndjson")

    async def read(self, request: Request) -> Response:
        topic = self.topics.get(request.path_params["topic"])
        if topic is None:
            return problem(404, "topic-unknown")
        after = request.query_params["from"]
        epoch, _, position = after.rpartition("-")
        start = topic.trimmed if after == "epoch" else int(position)
        if after != "epoch" and (epoch != topic.epoch or start < topic.trimmed):
            return problem(410, "bookmark-expired")
        limit = int(request.query_params["limit"])
        rows = enumerate(topic.values[start : start + limit], start=start + 1)
        lines = [_line(value, topic.bookmark(at).encode()) for at, value in rows]
        return Response(b"".join(lines), media_type="application/x-ndjson")

    async def stage(self, request: Request) -> Response:
        if self.refusals:
            return problem(self.refusals.pop(0), "made-up")
        topic = self.topics.get(request.path_params["topic"])
        if topic is None:
            return problem(404, "topic-unknown")
        values = [line for line in (await request.body()).split(b"\n") if line.strip()]
        for value in values:
            json.loads(value)
        if request.query_params.get("format") == "envelope":
            values = [_unfolded(json.loads(value)) for value in values]
        if topic.definition["source"] and not _is_pipeline(request.headers["tidegate-producer"]):
            return problem(403, "topic-read-only")
        topic.stages[request.headers["tidegate-stage"]] = values
        return JSONResponse({"messages": len(values)}, 201)

    async def commit(self, request: Request) -> Response:
        if self.refusals:
            return problem(self.refusals.pop(0), "made-up")
        topic = self.topics[request.path_params["topic"]]
        asked = await request.json()
        producer, run, sequence = asked["producer"], asked["run"], asked["sequence"]
        if topic.definition["source"] and not _is_pipeline(producer):
            return problem(403, "topic-read-only")
        if run < topic.runs.get(producer, 0):
            return problem(409, "producer-fenced")
        topic.runs[producer] = run
        if sequence <= topic.highest.get(producer, -1):
            # A commit of a stage that never was only asks for the number.
            topic.repeats += asked["stages"] != [f"{producer}.nothing"]
            answer = {"topic": request.path_params["topic"], "messages": 0, "duplicate": True}
            return JSONResponse({**answer, "sequence": topic.highest[producer]})
        if not all(name in topic.stages for name in asked["stages"]):
            return problem(412, "precondition-failed")
        values = [value for name in asked["stages"] for value in topic.stages[name]]
        for name in asked["stages"]:
            topic.stages.pop(name, None)
        topic.highest[producer] = sequence
        topic.values += values
        topic.publications.append(Publication(**asked, values=values))
        if self.hold_after is not None and len(topic.publications) == self.hold_after:
            self.held.set()
            await asyncio.sleep(3600)
        return JSONResponse({"topic": request.path_params["topic"], "messages": len(values)})


def _line(value: bytes, bookmark: bytes) -> bytes:
    if isinstance(value, Removed):
        why = b'"reason":"%s","value":{"v":"gone"}' % value.reason.encode()
        answer = (bytes(value), bookmark, why)
        return b'{"topic":"t","op":"oof","key":%s,"bookmark":"%s",%s}\n' % answer
    head = b'{"topic":"t","op":"publish","key":["k"],"bookmark":"%s"' % bookmark
    return head + b',"value":%s}\n' % value


def _unfolded(envelope: dict[str, Any]) -> bytes:
    if "reason" in envelope:
        return Removed(json.dumps(envelope["key"]).encode(), envelope["reason"])
    return json.dumps(envelope["value"], separators=(",", ":")).encode()


def _is_pipeline(producer: str) -> bool:
    return producer.startswith("tidegate.pipeline.")


def problem(status: int, code: str) -> Response:
    body = {"type": f"urn:tidegate:problem:{code}", "title": "No", "status": status, "code": code}
    return JSONResponse(body, status, media_type="application/problem+json")


class JournalServer:
    """A running server; it answers from `state`, which each test replaces by an empty one."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.state = Journals()
        self.clear()

    def clear(self) -> Journals:
        """Forget all topics; requests that still wait for an answer keep the state before."""
        self.state = Journals()
        self.state.address = self._address
        return self.state

    def answers(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that calls this method of the current state."""

        async def answer(request: Request) -> Response:
            answered: Response = await getattr(self.state, name)(request)
            return answered

        return answer


@contextmanager
def serving() -> Iterator[JournalServer]:
    """A server on a free port of this machine, stopped with the block."""
    path = "/v1/topics/{topic}"
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connections wait until it runs
        host, port = listener.getsockname()
        journals = JournalServer(f"http://{host}:{port}")
        app = Starlette(
            routes=[
                Route("/v1/topics", journals.answers("listed")),
                Route(path + "/sow", journals.answers("records")),
                Route(path, journals.answers("put"), methods=["PUT"]),
                Route(path, journals.answers("describe")),
                Route(path + "/messages", journals.answers("read")),
                Route(path + "/messages", journals.answers("stage"), methods=["POST"]),
                Route(path + "/commits", journals.answers("commit"), methods=["POST"]),
            ]
        )
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield journals
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()
