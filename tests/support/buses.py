"""Real servers to be the bus: Redis and Valkey with what a bus needs, started and killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream, eventually, running_gateway
from tests.support.outside import await_redis, bundled_valkey, require
from tidegate.app.cluster.connection import BusConnection

FLAGS = ("--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction")


def binary_of(kind: str) -> str:
    """The server of a kind, `redis` or `valkey`; else the test is skipped."""
    if kind == "redis":
        found = shutil.which("redis-server")
    else:
        found = shutil.which("valkey-server") or bundled_valkey()
    require(found is not None, f"no {kind} server")
    return str(found)


class BusServer:
    """A server in a folder of its own; it may die and come back."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/bus.sock"
        self._binary = binary
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed."""
        return self._server is not None

    @property
    def pid(self) -> int:
        """The process that runs."""
        assert self._server is not None
        return self._server.pid

    def start(self, *flags: str, before: Sequence[str] = (), sentinel: Path | None = None) -> None:
        """Start it on what its folder has; later flags win.

        Args:
            flags: more flags of the server.
            before: words to run it by.
            sentinel: a configuration file, with which it starts as a Sentinel.
        """
        address = str(self.folder / "bus.sock")
        command = [self._binary, *([] if sentinel is None else [str(sentinel), "--sentinel"])]
        command += ["--port", "0", "--unixsocket", address, "--dir", str(self.folder)]
        command += flags if sentinel else (*FLAGS, *flags)
        self._server = subprocess.Popen(
            [*before, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        await_redis(self._server, address)

    def kill(self) -> None:
        """As `kill -9` does it."""
        if self._server is not None:
            self._server.kill()
            self._server.wait(timeout=HANGS_S)
            self._server = None


def on_a_slow_disk(sync_s: float) -> list[str]:
    """Words before a command by which each sync of the disk takes so long."""
    require(shutil.which("strace") is not None, "no strace, which makes a disk slow")
    inject = f"inject=fdatasync:delay_enter={round(sync_s * 1e6)}"
    return ["strace", "-D", "-f", "-q", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject]


@contextlib.contextmanager
def bus_server(kind: str = "redis", *flags: str) -> Iterator[BusServer]:
    """A running server that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bus-") as folder:
        server = BusServer(binary_of(kind), Path(folder))
        server.start(*flags)
        try:
            yield server
        finally:
            server.kill()


PREFIXES = (f"bus-{number}" for number in itertools.count())


@contextlib.asynccontextmanager
async def gateways(server: BusServer, count: int = 2, **given: Any) -> AsyncIterator[list[Running]]:
    """So many gateways that share what no other test sees."""
    prefix = next(PREFIXES)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                running_gateway(redis=server.url, redis_prefix=prefix, **given)
            )
            for _ in range(count)
        ]


DEFINE_ELSEWHERE = """
local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[4], version .. '-0', 'name', ARGV[1], 'epoch', ARGV[2], 'document', ARGV[3])
"""


async def define_elsewhere(connection: BusConnection, name: str, epoch: str, text: bytes) -> None:
    """Write a definition as a gateway of another version does, in one step."""
    keys = map(connection.shared_key, ("life", "documents", "epochs", "changes"))
    await connection.execute("EVAL", DEFINE_ELSEWHERE, 4, *keys, name, epoch, text)


async def has_topic(gateway: Running, name: str = "px") -> None:
    catalog = gateway.gateway.catalog
    await eventually(lambda: catalog.find(name) is not None, f"{name} is known")


async def document(stream: Stream, name: str) -> dict[str, Any]:
    """The next event, which has this name."""
    event = await stream.next()
    assert event.name == name, event
    found: dict[str, Any] = json.loads(event.text)
    return found
