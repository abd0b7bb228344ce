"""Stores on which a gateway must not start: they would not keep what it acknowledges."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from tests.faults.setups.children import DidNotStart, GatewayChild, RedisChild
from tests.faults.setups.gateway import redis_binary

UNUSABLE = 78
UNFIT: dict[str, tuple[str | None, tuple[str, ...], dict[str, str]]] = {
    "it evicts": ("everysec", ("--maxmemory-policy", "allkeys-lru"), {}),
    "it keeps nothing": (None, (), {}),
    "it syncs too seldom": ("everysec", (), {"TIDEGATE_DURABILITY": "power"}),
}
"""Of a Redis: its appendfsync, more of its settings, the gateway's settings."""


async def start_on(name: str) -> str:
    """What is wrong with a start on an unfit Redis; empty if it is refused as it has to be."""
    fsync, words, environment = UNFIT[name]
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-faults-")))
        redis = await stack.enter_async_context(RedisChild(redis_binary(), folder, fsync, *words))
        await redis.start()
        gateway = GatewayChild("--redis", redis.url, log=folder / "log", before=(), **environment)
        await stack.enter_async_context(gateway)
        try:
            await gateway.start()
        except DidNotStart as refusal:
            if refusal.status != UNUSABLE or "Traceback" in gateway.logged:
                return f"{name}: it ended with {refusal.status}: {refusal}"
            return ""
        return f"{name}: it started"
