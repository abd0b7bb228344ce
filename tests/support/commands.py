"""Real processes of the command `tidegate`, started as people start them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import click

import dev
from tests.support.deadlines import HANGS_S

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
    """A process that has ended."""

    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """The tests' own, without settings that would reach the command."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDEGATE_")}
    return {**kept, "PYTHONPATH": str(dev.ROOT)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-W", "error", "-m", "tidegate.app.cli.main", *arguments]


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
    return subprocess.Popen(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "TIDEGATE_DATA": ":memory:", **variables},
    )


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
def serving(*arguments: str) -> Iterator[str]:
    """The address of `tidegate serve` on a free port, stopped at the end."""
    process = start("serve", "--port", "0", *arguments)
    try:
        yield address_of(process)
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)
