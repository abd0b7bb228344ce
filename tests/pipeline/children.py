"""A child process in a group of its own; Spark's Java has another, and ends once the child has."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from dev import ROOT
from tests.support.deadlines import HANGS_S

POLL_EVERY_S = 0.05


class Child:
    """A running command; whatever is left of its group is killed with the `with` block.

    Java is not in it, and ends by itself when its standard input does.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._log = folder / f"child-{len(list(folder.glob('child-*')))}.log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def started(self) -> list[psutil.Process]:
        """All processes that come from it, now."""
        found: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return found

    def kill(self) -> None:
        """kill -9 for the whole group, and wait for it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, number: signal.Signals, seconds: float = HANGS_S) -> int:
        """Signal the whole group, as a terminal does; returns the exit code."""
        os.killpg(self._process.pid, number)
        return self._process.wait(seconds)

    def wait(self, seconds: float) -> int:
        """The exit code, once it has ended by itself; fail if time runs out first."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.output()}") from None

    def await_until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Return when the condition holds; fail if the process ends or time runs out first."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self._process.poll() is None, f"it ended:\n{self.output()}"
            assert time.monotonic() < deadline, f"it did not get there:\n{self.output()}"
            time.sleep(POLL_EVERY_S)

    def output(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")
