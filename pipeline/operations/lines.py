"""What is said of streams on the terminal."""

from __future__ import annotations

from pathlib import Path

from pipeline.operations.condition import Condition


def progress_line(now: Condition, dead_letters: Path) -> str:
    """How far a stream is, how fast, how much is left, and what was refused."""
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
    if now.restarts:
        parts.append(f"{now.restarts:,} restarts")
    return f"{now.name}: {', '.join(parts)}"


def restart_line(error: str, pause_s: float) -> str:
    """Why a stream stands still, and until when."""
    return f"{error}; it is started again in {pause_s:.0f} s"
