"""The deadlines of waits for events: only what hangs meets them.

What a busy machine takes is no fault, so no test bounds computation by the clock. Promises about
time are measured with `stopwatch.py`, and searches are bounded by CPU time with `computed`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HANGS_S = 300.0  # of a wait for one event
LOOPS_S = 2 * HANGS_S
"""Deadline of a block of several waits. With one of `HANGS_S` a block would always end before
the wait inside it that hangs, and nobody could see which one that is. pytest's own is longer."""
CPU_S_MAX = 300  # ten times what the longest search takes


def computed(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    cpu_s_max: int = CPU_S_MAX,
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may take so many seconds of CPU, then is killed by a signal."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu_s_max, cpu_s_max + 1)),
    )
