"""A pipeline behind the gateway: a topic of numbered messages, a stream of it, and its results.

Every message has a key of its own, so that every one survives conflation: the sink has to have
each of them once, in the order in which they were published.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil

from tests.faults.setups.gateway import CannotRun
from tests.faults.setups.waiting import happens
from tests.support.deadlines import HANGS_S

RAW, NEWEST = "raw", "newest"
ROWS_PER_BATCH = 50
READ_MAX = 100_000
POLL_EVERY_S = 0.2
ROOT = Path(__file__).resolve().parents[2]
TOML = """\
gateway = "{gateway}"
[pipeline.numbered]
key = ["/k"]
interval = "100ms"
rows_per_batch = {rows}
source = {{kind = "tidegate", topic = "raw"}}
sink = {{topic = "newest"}}
"""


class PipelineChild:
    """`python -m tidegate.pipeline run`, with the Java and Python processes that it starts.

    Args:
        folder: of the definition, the checkpoint and what it says.
        gateway: address of the gateway.
        words: more of the command.
        toml: the definition, with `{gateway}` and `{rows}` to be filled in.
        before: what stands before the command.
    """

    def __init__(
        self,
        folder: Path,
        gateway: str,
        *words: str,
        toml: str = TOML,
        before: Sequence[str] = (),
    ) -> None:
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise CannotRun("no Java")
        self.folder = folder
        self.checkpoint = folder / "checkpoints" / "numbered"
        self._log = folder / f"pipeline-{len(list(folder.glob('pipeline-*')))}.log"
        self._log.touch()
        definition = folder / "streams.toml"
        definition.write_text(toml.format(gateway=gateway, rows=ROWS_PER_BATCH))
        self._command = [
            *before,
            sys.executable,
            "-m",
            "tidegate.pipeline",
            "run",
            str(definition),
            *words,
        ]
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Of the driver."""
        assert self._process is not None
        return self._process.pid

    @property
    def logged(self) -> str:
        """What it said."""
        return self._log.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself, or was killed."""
        return self._process is not None and self._process.returncode is not None

    async def __aenter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.kill()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the driver and to all that it has started."""
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self.pid)
            for process in [driver, *driver.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    async def kill(self) -> None:
        """End driver, Java and workers as a crash does, and wait for the driver."""
        assert self._process is not None
        self.signal_all(signal.SIGKILL)
        async with asyncio.timeout(HANGS_S):
            await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM to the driver; its exit status."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return await self.exit_status()

    async def exit_status(self) -> int:
        """Once it has ended."""
        assert self._process is not None
        async with asyncio.timeout(HANGS_S):
            return await self._process.wait()

    async def gets_to(self, place: asyncio.Event, seconds_max: float = HANGS_S) -> bool:
        """Whether it comes to stand at a place before it ends, in time."""
        await happens(lambda: place.is_set() or self.ended, seconds_max)
        return place.is_set()


async def publish(gateway: str, first: int, beyond: int) -> None:
    """Make the source topic, and publish messages with these numbers."""
    await publish_lines(gateway, [b'{"k":%d,"n":%d}' % (n, n) for n in range(first, beyond)])


async def publish_lines(gateway: str, lines: Sequence[bytes]) -> None:
    """Make the source topic, and publish these messages."""
    async with _client(gateway) as http:
        document = {"key": ["/k"], "history": {"messages": READ_MAX}}
        (await http.put(f"/v1/topics/{RAW}", json=document)).raise_for_status()
        headers = {"Content-Type": "application/x-ndjson"}
        answer = await http.post(
            f"/v1/topics/{RAW}/messages", content=b"\n".join(lines), headers=headers
        )
        answer.raise_for_status()


async def sunk(gateway: str) -> list[int]:
    """The numbers in the sink topic, in its order; none where there is no answer."""
    return [message["n"] for message in await messages_of(gateway, NEWEST)]


async def messages_of(gateway: str, topic: str) -> list[dict[str, Any]]:
    """The messages of a topic in their order; none where there is no answer."""
    try:
        async with _client(gateway) as http:
            address = f"/v1/topics/{topic}/messages"
            answer = await http.get(address, params={"limit": READ_MAX})
    except httpx2.TransportError:
        return []
    if not answer.is_success:
        return []
    return [json.loads(line)["value"] for line in answer.text.splitlines()]


async def has_all(gateway: str, messages: int) -> bool:
    """Whether the sink has as many as were published; asks no oftener than five times a second."""
    await asyncio.sleep(POLL_EVERY_S)
    return len(await sunk(gateway)) >= messages


def _client(gateway: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=gateway, timeout=HANGS_S, trust_env=False, verify=False)


def judge(numbers: Sequence[int], messages: int) -> Iterator[str]:
    """What is wrong with the sink of messages 0 to `messages`: lost, doubled, out of order."""
    times = Counter(numbers)
    lost = [n for n in range(messages) if n not in times]
    doubled = [n for n, count in times.items() if count > 1]
    if lost:
        yield f"{len(lost)} of {messages} messages are lost, the first is {lost[0]}"
    if doubled:
        yield f"{len(doubled)} messages came more than once, the first is {doubled[0]}"
    if list(numbers) != sorted(numbers):
        yield "messages are out of order"
