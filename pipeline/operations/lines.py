"""What is said of streams on the terminal."""

from __future__ import annotations

from pathlib import Path

from pipeline.operations.condition import Condition, State

PROGRESS_EVERY_S = 3.0
WORKING_S_MIN = 1.0
"""A batch that takes less needs no word."""


def progress_line(now: Condition, dead_letters: Path | None = None) -> str:
    """How far a stream is, how fast, how much is left, and what was refused, if it may refuse."""
    parts = [
        f"{now.batches:,} batches",
        f"{now.messages:,} messages in",
        f"{now.published:,} out",
    ]
    if now.batches:
        parts.append(f"{now.pace.rows_per_s:,.0f}/s, {now.pace.batch_s:.2f} s a batch")
    if now.pace.lag is not None:
        parts.append(f"{now.pace.lag:,} behind")
    if now.held is not None:
        parts.append(f"{now.held:,} keys held")
    if now.repeated:
        parts.append(f"{now.repeated:,} written by an earlier run")
    if now.refused:
        parts.append(f"{now.refused:,} refused (see {dead_letters})")
    if now.merger_failures:
        parts.append(f"{now.merger_failures:,} merges failed")
    doing = _doing(now)
    if doing:
        parts.append(doing)
    if now.restarts:
        parts.append(f"{now.restarts:,} restarts")
    return f"{now.name}: {', '.join(parts)}"


def _doing(now: Condition) -> str:
    """Why nothing seems to happen, if nothing does."""
    match now.state:
        case State.RUNNING if now.working_s is not None:
            return f"at a batch for {now.working_s:.0f} s" * (now.working_s >= WORKING_S_MIN)
        case State.RUNNING if now.finds_nothing:
            return "nothing new to read"
        case State.RUNNING:
            has_read = now.batches or now.pace.batch is not None
            return "" if has_read else "getting ready to read"
        case State.WAITING:
            return "waiting for its next start"
        case state:
            return state.value


def restart_line(error: str, pause_s: float) -> str:
    """Why a stream stands still, and until when."""
    return f"{error}; it is started again in {pause_s:.0f} s"
