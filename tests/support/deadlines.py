"""The deadlines of waits for events: only what hangs meets them.

What a busy machine takes is no fault, so no test bounds computation by the clock. Promises about
time are measured with `stopwatch.py`.
"""

from __future__ import annotations

HANGS_S = 300.0  # of a wait for one event
LOOPS_S = 2 * HANGS_S
"""Deadline of a block of several waits. With one of `HANGS_S` a block would always end before
the wait inside it that hangs, and nobody could see which one that is. pytest's own is longer."""
