"""The processes that are killed or stopped: started here, known by their ids, ended at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Self

from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port

ASK_AGAIN_S = 0.01
TIDEGATE = Path(sys.executable).with_name("tidegate")


class DidNotStart(Exception):
    """A process ended, or was silent, instead of serving; its last words."""

    def __init__(self, words: str, status: int | None) -> None:
        super().__init__(words)
        self.status = status


class Child:
    """A process on a port of its own, that can be started again where it left off.

    Attributes:
        port: on loopback, the same in every life.
        starts: how many times it was started.
    """

    def __init__(self, *command: str, port: int, log: Path, **environment: str) -> None:
        self.port = port
        self.starts = 0
        self._command = command
        self._log = log
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
        self._environment = {**inherited, **environment}
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def logged(self) -> str:
        """All that it wrote, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def launch(self) -> None:
        """Start it, and do not wait."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    async def start(self) -> float:
        """Start it; how long it took until it was ready.

        Raises:
            DidNotStart: it ended, or is not ready in time.
        """
        began_at = time.monotonic()
        await self.launch()
        assert self._process is not None
        while not await self.is_ready():
            if self._process.returncode is not None:
                raise DidNotStart(self._last_words(), self._process.returncode)
            if time.monotonic() - began_at > HANGS_S:
                raise DidNotStart(f"not ready in {HANGS_S:.0f} s: {self._last_words()}", None)
            await asyncio.sleep(ASK_AGAIN_S)
        return time.monotonic() - began_at

    async def is_ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        """End it as a crash does, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        """The exit status of a process that is about to end."""
        assert self._process is not None
        async with asyncio.timeout(HANGS_S):
            return await self._process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            await self.kill()

    def _last_words(self) -> str:
        return " / ".join(self.logged.splitlines()[-3:]) or "it said nothing"


class GatewayChild(Child):
    """`tidegate serve` with a store: a folder, or a Redis."""

    def __init__(
        self, *store: str, log: Path, before: tuple[str, ...] = (), **environment: str
    ) -> None:
        port = lasting_port()
        command = (*before, str(TIDEGATE), "serve", "--port", str(port), *store)
        super().__init__(*command, port=port, log=log, **environment)
        self.address = f"http://127.0.0.1:{port}"

    async def is_ready(self) -> bool:
        """Whether `/readyz` says so."""
        request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        return b" 200 " in (await ask(self.port, request)).partition(b"\r\n")[0]


class RedisChild(Child):
    """A Redis or Valkey with its files in a folder; `fsync` is None where it keeps nothing."""

    def __init__(self, binary: str, folder: Path, fsync: str | None, *more: str) -> None:
        self.fsync = fsync
        port = lasting_port()
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--save", "", "--maxmemory-policy", "noeviction"]
        if fsync is not None:
            command += ["--appendonly", "yes", "--appendfsync", fsync]
        super().__init__(*command, *more, port=port, log=folder / "redis.log")
        self.url = f"redis://127.0.0.1:{port}/0"

    async def is_ready(self) -> bool:
        """Whether it has loaded what it had, and answers."""
        return (await ask(self.port, b"PING\r\nQUIT\r\n")).startswith(b"+PONG")


async def ask(port: int, request: bytes) -> bytes:
    """What is answered on a new connection, to its end; nothing where nobody listens."""
    try:
        async with asyncio.timeout(HANGS_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                return await reader.read()
            finally:
                writer.close()
    except OSError:
        return b""
