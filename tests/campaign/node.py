"""A Redis of the pair: primary or replica, on a port that it keeps through every start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.faults.setups.children import Child, ask
from tests.support.buses import on_a_slow_disk
from tests.support.ports import lasting_port

REPLY_S_MAX = 10.0
FLAGS = (
    *("--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"),
    *("--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"),
)


class Node(Child):
    """A Redis with its files in a folder; each start may have another role or disk.

    Attributes:
        name: in reports.
    """

    def __init__(self, name: str, binary: str, folder: Path, fsync: str) -> None:
        folder.mkdir()
        self.name = name
        port = lasting_port()
        place = ("--port", str(port), "--dir", str(folder))
        self._base = (binary, *place, *FLAGS, "--appendfsync", fsync)
        super().__init__(*self._base, port=port, log=folder / "redis.log")

    def configure(self, *, replica_of: int = 0, sync_s: float = 0.0, save_us: int = 0) -> None:
        """Say how the next start is.

        Args:
            replica_of: the port of its primary; 0: it is a primary.
            sync_s: how long each sync of its disk takes.
            save_us: how much longer it takes for each key to write its file anew.
        """
        before: Sequence[str] = on_a_slow_disk(sync_s) if sync_s else ()
        role = ("--replicaof", "127.0.0.1", str(replica_of)) if replica_of else ()
        slow = ("--rdb-key-save-delay", str(save_us)) if save_us else ()
        self._command = (*before, *self._base, *role, *slow)

    @property
    def is_running(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self._process is not None and self._process.returncode is None

    async def is_ready(self) -> bool:
        """Whether it has loaded its files, and answers."""
        return (await ask(self.port, b"PING\r\nQUIT\r\n")).startswith(b"+PONG")

    async def command(self, *words: object) -> Any:
        """Return what it answers, past every proxy.

        Raises:
            RedisError: it does not answer, or refuses.
        """
        client = Redis(port=self.port, socket_timeout=REPLY_S_MAX, decode_responses=True)
        try:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py
        finally:
            # A cancellation in this moment would leave its connection open.
            await asyncio.shield(client.aclose())

    async def follows(self) -> bool:
        """Whether it is a replica that has all that its primary had a moment ago."""
        try:
            found = await self.command("INFO", "replication")
        except (RedisError, OSError):
            return False
        return bool(found.get("master_link_status") == "up")

    async def heads(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the last offset of each topic."""
        found = {}
        for topic in topics:
            head = await self.command("HGET", f"{{tidegate:{topic}}}:state", "head")
            found[topic] = int(head or 0)
        return found

    async def chain(self, topic: str) -> tuple[str, str]:
        """Return the epoch of a topic, and the epochs that it followed as the scripts note them."""
        key = f"{{tidegate:{topic}}}:state"
        epoch, former = await self.command("HMGET", key, "epoch", "former")
        return epoch or "", former or ""
