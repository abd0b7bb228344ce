"""The command `tidegate`: run within this process, or started as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import click

import dev
from tests.support import leftovers
from tests.support.deadlines import HANGS_S
from tests.support.gateways import running_gateway

LISTENS = re.compile(r"Tidegate listens on (http://\S+)")


def parsed(*words: str) -> click.Context:
    """The verb that the words name, with what they say in `params`; nothing is run."""
    from tidegate.app.cli.command import tidegate
    from tidegate.app.cli.terminal import PROGRAM

    context = tidegate.make_context(PROGRAM, list(words))
    while isinstance(group := context.command, click.Group):
        name, verb, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert verb is not None
        context = verb.make_context(name, rest, parent=context)
    return context


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """The tests' own, without settings that would reach the command."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDEGATE_")}
    return {**kept, "PYTHONPATH": str(dev.ROOT)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-W", "error", "-m", "tidegate.app.cli.main", *arguments]


def call(*arguments: str, stdin: bytes = b"", cwd: str | None = None, **variables: str) -> Ended:
    """Run a command to its end in this thread, which takes milliseconds."""
    from tidegate.app.cli.main import main

    out, err = io.BytesIO(), io.BytesIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with (
        mock.patch.dict(os.environ, {**environment(), **variables}, clear=True),
        contextlib.chdir(cwd or "."),
        io.TextIOWrapper(io.BytesIO(stdin)) as source,
        io.TextIOWrapper(out, "utf-8") as stdout,
        io.TextIOWrapper(err, "utf-8", write_through=True) as stderr,
        mock.patch.multiple(sys, stdin=source, stdout=stdout, stderr=stderr),
    ):
        try:
            code = main(arguments)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        stdout.flush()
        return Ended(code, out.getvalue().decode(), err.getvalue().decode())


@contextlib.contextmanager
def serving_here(**given: Any) -> Iterator[str]:
    """The address of a gateway in a thread of this process, stopped at the end."""
    started: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        async with running_gateway(**given) as running:
            loop, stopping = asyncio.get_running_loop(), asyncio.Event()
            stop = partial(loop.call_soon_threadsafe, stopping.set)
            started.set_result((running.address, stop))
            await stopping.wait()

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(asyncio.run, serve())
        futures: list[Future[Any]] = [started, ended]
        wait(futures, HANGS_S, FIRST_COMPLETED)
        if ended.done():
            ended.result()  # raises what kept it from starting
        address, stop = started.result(0)
        try:
            yield address
        finally:
            stop()
            ended.result(HANGS_S)


def run(*arguments: str, stdin: bytes = b"", cwd: str | None = None, **variables: str) -> Ended:
    """Run a command to its end."""
    ended = subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**environment(), **variables},
        timeout=HANGS_S,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A running command, its output in pipes; a gateway keeps nothing unless it is told where."""
    process = subprocess.Popen(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "TIDEGATE_DATA": ":memory:", **variables},
        process_group=0,
    )
    leftovers.watch(process)
    return process


def address_of(process: subprocess.Popen[str]) -> str:
    """The address that a gateway prints when it listens."""
    assert process.stdout is not None
    overdue = threading.Timer(HANGS_S, process.kill)
    overdue.start()
    try:
        for line in process.stdout:
            found = LISTENS.fullmatch(line.rstrip())
            if found:
                return found[1]
    finally:
        overdue.cancel()
    rest = process.stderr.read() if process.stderr else ""
    raise AssertionError(f"it ended with {process.wait()} before it listened: {rest}")


@contextlib.contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[str]:
    """The address of `tidegate serve` on a free port, stopped at the end."""
    process = start("serve", "--port", "0", *arguments, **variables)
    try:
        yield address_of(process)
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)
