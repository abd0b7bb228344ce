"""A gateway in a process of its own, with a client of it and one topic."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import httpx2

from bench.servers.process import HANGS_S, SERVER_CORE, Process, running

TIDEGATE = Path(sys.executable).with_name("tidegate")
NDJSON = {"Content-Type": "application/x-ndjson"}
TOPIC = "bench"
KEY = "/tickerId"


@dataclass(slots=True)
class Gateway:
    """A gateway, measured from outside."""

    process: Process
    client: httpx2.Client

    @property
    def port(self) -> int:
        """The port of its listener."""
        return self.client.base_url.port or 80

    def publish(self, body: bytes, topic: str = TOPIC) -> None:
        """Publish the lines of a body in one request."""
        path = f"/v1/topics/{topic}/messages"
        self.client.post(path, content=body, headers=NDJSON).raise_for_status()

    def define(self, topic: str = TOPIC, key: str = KEY, **more: object) -> None:
        """Create a topic."""
        definition = {"key": [key], **more}
        self.client.put(f"/v1/topics/{topic}", json=definition).raise_for_status()

    def request(self, options: str, *headers: str, topic: str = TOPIC, **more: str) -> str:
        """Return the request of a subscriber that wants no snapshot."""
        query = urlencode({"options": options, "command": "subscribe", **more})
        lines = [
            f"GET /v1/topics/{topic}/subscribe?{query} HTTP/1.1",
            f"Host: localhost:{self.port}",
            "Accept: text/event-stream",
            *headers,
        ]
        return "\r\n".join([*lines, "", ""])


@contextlib.contextmanager
def gateway(
    *arguments: str,
    data: str = ":memory:",
    port: int = 0,
    cores: Sequence[int] | None = (SERVER_CORE,),
    command: Sequence[str | Path] = (TIDEGATE,),
    **settings: str,
) -> Iterator[Gateway]:
    """Start a gateway with these arguments of `serve` and settings; end it afterwards.

    `command`: what runs it.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    environment |= {f"TIDEGATE_{name.upper()}": value for name, value in settings.items()}
    store = [] if "--redis" in arguments else ["--data", data]
    words = [*command, "serve", *store, "--port", str(port), *arguments]
    with running(words, cores, environment) as process:
        address = process.read().split()[-1]
        with httpx2.Client(base_url=address, timeout=HANGS_S, trust_env=False) as client:
            yield Gateway(process, client)
