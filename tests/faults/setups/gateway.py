"""The setup of one fault: a gateway, perhaps a Redis behind a proxy, and what was found wrong."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.faults.kinds import power
from tests.faults.setups.children import GatewayChild, RedisChild
from tests.faults.setups.waiting import happens
from tests.support.clocks.stopwatch import Stopwatch
from tests.support.deadlines import HANGS_S
from tests.support.network.fault_proxy import FaultProxy, fault_proxy

BACK_S_MAX = 10.0  # I20
OK, UNAVAILABLE = 200, 503


class CannotRun(Exception):
    """A fault that this machine, or this build, has no way to play; the reason."""


@dataclass(slots=True, eq=False)
class Setup:
    """What a fault is played on.

    Attributes:
        children: what a fault starts besides, so that it ends.
        figures: what was measured, in words.
        findings: what was wrong besides what the oracle finds.
    """

    folder: Path
    gateway: GatewayChild
    chance: random.Random
    children: contextlib.AsyncExitStack
    redis_child: RedisChild | None = None
    fault_proxy: FaultProxy | None = None
    figures: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def redis(self) -> RedisChild:
        """The Redis, where the setup has one."""
        assert self.redis_child is not None
        return self.redis_child

    @property
    def proxy(self) -> FaultProxy:
        """What lies between gateway and Redis."""
        assert self.fault_proxy is not None
        return self.fault_proxy

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.findings.append(otherwise)

    async def in_time(
        self, condition: Callable[[], bool | Awaitable[bool]], seconds_max: float
    ) -> bool:
        """Whether a condition comes to hold in so many seconds in which the gateway had a core."""
        with Stopwatch(self.gateway.pid) as watch:
            happened = await happens(condition, HANGS_S)
        return happened and watch.taken_s <= seconds_max

    async def status(self, path: str) -> int:
        """What a GET is answered; 0 for no answer."""
        return (await self.question("GET", path))[0]

    async def publish(self) -> tuple[int, str]:
        """Status and code of a message to a topic that no ledger knows; 0 for no answer."""
        return await self.question("POST", "/v1/topics/aside/messages", b'{"probe": 1}')

    def client(self) -> httpx2.AsyncClient:
        """A client of the gateway."""
        return httpx2.AsyncClient(base_url=self.gateway.address, timeout=HANGS_S, trust_env=False)

    async def question(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Status, and the problem's code where there is one."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self.client() as http:
                answer = await http.request(method, path, content=body, headers=headers)
        except httpx2.HTTPError:
            return 0, ""
        if answer.headers.get("content-type") == "application/problem+json":
            return answer.status_code, answer.json()["code"]
        return answer.status_code, ""

    async def refuses(self) -> bool:
        """Whether publishing is refused as it must be while the store is out."""
        return await self.publish() == (UNAVAILABLE, "bus-unavailable")

    async def back(self) -> float:
        """How long it takes until it is ready and takes messages; longer than I20 is a finding."""
        began_at = time.monotonic()

        async def is_back() -> bool:
            return (await self.publish())[0] == OK and await self.status("/readyz") == OK

        if not await self.in_time(is_back, BACK_S_MAX):
            self.findings.append(f"not back after {BACK_S_MAX:.0f} s: {await self.publish()}")
        return time.monotonic() - began_at


@contextlib.asynccontextmanager
async def on_sqlite(
    seed: int, *, disk_kb: int = 0, strace: bool = False, **environment: str
) -> AsyncIterator[Setup]:
    """A gateway that runs, with the SQLite store.

    Args:
        seed: of all that is left to chance.
        disk_kb: the store has a disk of its own, of this size.
        strace: what it writes is noted in the setup's file `trace`.
        environment: of the gateway.

    Raises:
        CannotRun: no strace, or no small disk.
    """
    if strace and shutil.which("strace") is None:
        raise CannotRun("no strace on PATH")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-faults-")))
        store = folder / "store"
        store.mkdir()
        if disk_kb:
            stack.enter_context(small_disk(store, disk_kb))
        before = power.command(folder / "trace") if strace else ()
        gateway = GatewayChild(
            "--data", str(store), log=folder / "gateway.log", before=before, **environment
        )
        async with contextlib.AsyncExitStack() as children:
            await children.enter_async_context(gateway)
            await gateway.start()
            yield Setup(folder, gateway, random.Random(seed), children)


@contextlib.contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[None]:
    """A file system of its own in a folder.

    Raises:
        CannotRun: only root may.
    """
    if os.geteuid() != 0:
        raise CannotRun("only root may mount a small disk")
    words = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tidegate-faults", str(folder)]
    if subprocess.run(words, capture_output=True).returncode != 0:
        raise CannotRun("no small disk could be mounted")
    try:
        yield
    finally:
        # Lazily: a file that could not be written may be held open for a while.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.asynccontextmanager
async def on_redis(
    seed: int, *, fsync: str | None = "everysec", disk_kb: int = 0, **environment: str
) -> AsyncIterator[Setup]:
    """A gateway that runs, a Redis, and a proxy between the two.

    Args:
        seed: of all that is left to chance.
        fsync: of the append-only file.
        disk_kb: Redis has a disk of its own, of this size.
        environment: of the gateway.

    Raises:
        CannotRun: no Redis, or no small disk.
    """
    binary = redis_binary()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-faults-")))
        files = folder / "redis"
        files.mkdir()
        if disk_kb:
            stack.enter_context(small_disk(files, disk_kb))
        async with contextlib.AsyncExitStack() as children:
            redis = await children.enter_async_context(RedisChild(binary, files, fsync))
            await redis.start()
            proxy = await children.enter_async_context(
                fault_proxy("127.0.0.1", redis.port, seed=seed)
            )
            url = f"redis://127.0.0.1:{proxy.port}/0"
            gateway = GatewayChild("--redis", url, log=folder / "gateway.log", **environment)  # type: ignore[arg-type]  # no setting is called before
            await children.enter_async_context(gateway)
            await gateway.start()
            yield Setup(folder, gateway, random.Random(seed), children, redis, proxy)


def redis_binary() -> str:
    """A Redis or Valkey on PATH.

    Raises:
        CannotRun: there is none.
    """
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise CannotRun("no redis-server and no valkey-server on PATH")
    return found
