"""From POST to sockets over loopback: bulk publishing, and conflated fan-out to streams."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil

from bench.engine import payloads

TIDEGATE = Path(sys.executable).with_name("tidegate")
SUBSCRIBERS = 200
REQUEST_MESSAGES = 1_000


def figures() -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each figure."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    server = subprocess.Popen(
        [TIDEGATE, "serve", "--data", ":memory:", "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        yield from asyncio.run(_measure(address, psutil.Process(server.pid)))
    finally:
        server.terminate()
        server.wait(10)


async def _measure(address: str, server: psutil.Process) -> list[tuple[str, float, str]]:
    texts = payloads()
    bodies = [
        b"\n".join(texts[start : start + REQUEST_MESSAGES])
        for start in range(0, len(texts), REQUEST_MESSAGES)
    ]
    found: list[tuple[str, float, str]] = []
    limits = httpx2.Limits(max_connections=SUBSCRIBERS + 8)
    async with httpx2.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        await client.put("/v1/topics/bench", json={"key": ["/tickerId"]})
        for subscribers in (0, SUBSCRIBERS):
            streams = [asyncio.create_task(_listen(client)) for _ in range(subscribers)]
            await asyncio.sleep(1 if subscribers else 0)
            # CPU time too: the publisher shares the cores, so wall time alone blames the server.
            started, cpu_s = time.perf_counter(), sum(server.cpu_times()[:2])
            for body in bodies:
                answer = await client.post(
                    "/v1/topics/bench/messages",
                    content=body,
                    headers={"Content-Type": "application/x-ndjson"},
                )
                answer.raise_for_status()
            seconds = time.perf_counter() - started
            cpu_s = sum(server.cpu_times()[:2]) - cpu_s
            name = f"bulk publish, {subscribers} subscribers at 500ms"
            found.append((name, len(texts) / seconds, "messages/s"))
            found.append((f"{name}: server", cpu_s / len(texts) * 1e6, "us CPU/message"))
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
    return found


async def _listen(client: httpx2.AsyncClient) -> None:
    query = {"options": "conflation=500ms", "format": "batch"}
    async with client.stream("GET", "/v1/topics/bench/subscribe", params=query) as stream:
        async for _ in stream.aiter_bytes():
            pass
