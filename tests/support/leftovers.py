"""Processes that a test leaves running are ended with it, and fail it and no other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from tests.support.deadlines import HANGS_S

_started: list[subprocess.Popen[str]] = []


def watch(process: subprocess.Popen[str]) -> None:
    """Remember a process that leads its group, if a test has started it and no fixture has."""
    if os.environ.get("PYTEST_CURRENT_TEST", "").endswith("(call)"):
        _started.append(process)


def end_leftovers() -> list[str]:
    """Kill what still runs of the processes that the test has started; return their commands."""
    found = [process for process in _started if process.poll() is None]
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=HANGS_S)
    _started.clear()
    return [str(process.args) for process in found]
