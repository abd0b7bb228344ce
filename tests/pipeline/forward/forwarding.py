"""Forwards that are run within the test's process, against a real gateway."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from tests.support.deadlines import HANGS_S
from tidegate.pipeline.forward.definition import ForwardDefinition, read_definitions
from tidegate.pipeline.forward.delivery import Forward
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.supervisor import RunOptions
from tidegate.pipeline.operations.threads import run_threads


def definitions(folder: Path, text: str, gateway: str) -> list[ForwardDefinition]:
    """Read a definition file with this text."""
    path = folder / "targets.toml"
    path.write_text(text)
    return read_definitions(path, gateway)


@contextlib.contextmanager
def forwarding(folder: Path, text: str, gateway: str) -> Iterator[list[str]]:
    """Run the forwards of a file during the block; yields the lines that are printed."""
    stop, lines = Stop(), list[str]()
    forwards = [Forward(each, lines.append) for each in definitions(folder, text, gateway)]
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run_threads, forwards, RunOptions(), stop, lines.append)
        try:
            yield lines
        finally:
            stop.ask()
            running.result(HANGS_S)


def brief(row: dict[str, Any]) -> tuple[str, Any]:
    """The operation of a row, and its value; for a removal, its key."""
    op = row["op"]
    return op, row.get("key") if op == "delete" else row.get("value")


@dataclass
class Posted:
    """A request as the HTTP server received it."""

    headers: dict[str, str]
    body: bytes

    @property
    def rows(self) -> list[tuple[str, Any]]:
        return [brief(row) for row in msgspec.json.decode(self.body)]


@dataclass
class Receiver:
    """An HTTP server that records requests; `answer` returns the status for the rows of one."""

    address: str = ""
    answer: Callable[[list[Any]], int] = lambda rows: 204
    posted: list[Posted] = field(default_factory=list)
    taken: list[Posted] = field(default_factory=list)

    @property
    def rows(self) -> list[tuple[str, Any]]:
        """The rows of the accepted requests, in order."""
        return [row for each in self.taken for row in each.rows]


@contextlib.contextmanager
def receiving(
    answer: Callable[[list[Any]], int] = lambda rows: 204, port: int = 0
) -> Iterator[Receiver]:
    """Serve HTTP during the block, on a free port by default."""
    receiver = Receiver(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            # Clients differ in how they capitalize the names of header fields.
            posted = Posted({name.lower(): text for name, text in self.headers.items()}, body)
            receiver.posted.append(posted)
            status = receiver.answer(msgspec.json.decode(body))
            if status < 300:
                receiver.taken.append(posted)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        receiver.address = f"http://127.0.0.1:{server.server_port}/prices"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join(HANGS_S)
