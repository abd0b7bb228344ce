"""The command `tidegate serve` as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from tests.support.deadlines import HANGS_S

COMMAND = Path(sys.executable).with_name("tidegate")


def with_descriptors(count: int) -> tuple[str, ...]:
    """Words before a command that let it have so many files and sockets."""
    return ("/bin/sh", "-c", f'ulimit -n {count}; exec "$@"', "sh")


@contextlib.asynccontextmanager
async def serving(*before: str, **variables: str) -> AsyncIterator[tuple[Process, str]]:
    """A gateway process that keeps nothing, and its address; killed if it is still there.

    Args:
        before: words to put before the command, to run it in some way.
        variables: of its environment.
    """
    environment = {**os.environ, **variables}
    command = (*before, str(COMMAND), "serve", "--port", "0", "--data", ":memory:")
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        process_group=0,
    )
    try:
        async with asyncio.timeout(HANGS_S):
            address = await _address(process)
        yield process, address
    finally:
        with contextlib.suppress(ProcessLookupError):  # workers of a gateway that is gone included
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def _address(process: Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        for word in line.decode().split():
            if word.startswith(("http://", "https://")):
                return word
    raise AssertionError("the gateway ended before it said its address")


async def ended(process: Process) -> tuple[int, str]:
    """Exit status and what was logged, once the process has ended."""
    async with asyncio.timeout(HANGS_S):
        _, logged = await process.communicate()
    assert process.returncode is not None
    return process.returncode, logged.decode()


def runs(process: psutil.Process) -> bool:
    """Whether it does: one that nobody has asked about since its end is still known."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
