"""The status of a running stream at a moment, and its line on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidegate.keys.errors import BookmarkInvalid
from tidegate.keys.text.bookmark import split_bookmark


class State(StrEnum):
    """The state of a stream."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for its next start, after a failure
    FAILED = "failed"  # for a reason that no start mends
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Pace:
    """How its newest batch went.

    `batch` is its number, `rows_per_s` how fast rows were worked off, `batch_s` how long it took,
    `lag` how many messages of a topic it left for the next, `margin` how many the topic's journal
    may drop before it drops one of these; None where nothing says so, and `margin` also where the
    journal has dropped nothing yet.
    """

    batch: int | None = None
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    lag: int | None = None
    margin: int | None = None


@dataclass(frozen=True, slots=True)
class BatchCount:
    """What became of the messages of one batch.

    `published` are rows that it wrote, `repeated` those that an earlier try had written, `refused`
    what went to the dead letters, and `unmatched` removals that found no record.
    """

    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of several batches, as of one.

    `newest` is the number of messages of the newest batch; `took_s` is the time of all batches,
    without waiting for the end of an interval.
    """

    batches: int = 0
    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    unmatched: int = 0
    newest: int = field(default=0, compare=False)
    took_s: float = field(default=0.0, compare=False)

    def with_batch(self, count: BatchCount, took_s: float = 0.0) -> Totals:
        """Return these counts with one more batch."""
        return Totals(
            batches=self.batches + 1,
            messages=self.messages + count.messages,
            published=self.published + count.published,
            repeated=self.repeated + count.repeated,
            refused=self.refused + count.refused,
            unmatched=self.unmatched + count.unmatched,
            newest=count.messages,
            took_s=self.took_s + took_s,
        )


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream at a moment; `totals` are those since the command was started.

    `held` is how many keys wait for the end of their interval, None where none can;
    `merger_failures` those since the checkpoint began, None without a merger. `working_s` is
    for how long a batch has been worked on, None where none is; `finds_nothing`, whether there was
    nothing to read when it last looked. `error` is why it last failed, in a sentence; `at_s` is
    when this was seen, in seconds of the epoch.
    """

    name: str
    state: State = State.STARTING
    pace: Pace = Pace()
    totals: Totals = Totals()
    held: int | None = None
    merger_failures: int | None = None
    working_s: float | None = None
    finds_nothing: bool = False
    restarts: int = 0
    error: str = ""
    at_s: float = 0.0


def pace_of(progress: Mapping[str, Any] | None, before: Pace = Pace(), messages: int = 0) -> Pace:
    """Return the pace of a query's newest trigger (`StreamingQuery.lastProgress`).

    `messages` are those of the newest batch; Spark itself counts blocks and pages of messages.

    One that found nothing to read was no batch: the pace is what it was `before`.
    """
    took = (progress or {}).get("durationMs", {})
    # Spark reports triggers without a batch too; these must not reset the pace.
    if not progress or "addBatch" not in took:
        return before
    # Only topics have positions that can be subtracted; a clock or files have no lag.
    sources = progress.get("sources", ())
    lags = [lag for source in sources if (lag := _lag(source)) is not None]
    margins = [margin for source in sources if (margin := _margin(source)) is not None]
    took_ms = took.get("triggerExecution", 0)
    return Pace(
        batch=progress.get("batchId"),
        rows_per_s=messages * 1_000 / took_ms if took_ms else 0.0,
        batch_s=took_ms / 1000,
        lag=sum(lags) if lags else None,
        margin=min(margins, default=None),
    )


def finds_nothing(status: Mapping[str, Any]) -> bool:
    """Return whether a query waits because there is nothing to read (`StreamingQuery.status`)."""
    # A query that initializes is neither busy nor idle, and Spark says so in its message alone.
    is_busy = status.get("isDataAvailable") or status.get("isTriggerActive")
    return not is_initializing(status) and not is_busy


def is_initializing(status: Mapping[str, Any]) -> bool:
    """Return whether a query has not read its sources yet (`StreamingQuery.status`)."""
    return str(status.get("message", "")).startswith("Initializing")


def _lag(source: Mapping[str, Any]) -> int | None:
    """Return the positions between the end of a topic's batch and the topic's newest."""
    ended, newest = _position(source.get("endOffset")), _position(source.get("latestOffset"))
    if ended is None or newest is None:
        return None
    return max(0, newest - ended)


def _margin(source: Mapping[str, Any]) -> int | None:
    """Return the positions between the beginning of a topic's journal and the end of its batch."""
    ended = _position(source.get("endOffset"))
    first = _position(source.get("latestOffset"), "first")
    # From position 1 on the journal has everything: its length is no bound yet.
    if ended is None or first is None or first <= 1:
        return None
    return max(0, ended + 1 - first)


def _position(offset: Any, name: str = "bookmark") -> int | None:
    """Return the position of `{"bookmark": "<epoch>-<position>"}`, a text or a mapping."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    bookmark = offset.get(name) if isinstance(offset, Mapping) else None
    try:
        return split_bookmark(bookmark)[1] if isinstance(bookmark, str) else None
    except BookmarkInvalid:
        return None


# --- lines on the terminal


PROGRESS_EVERY_S = 3.0
WORKING_S_MIN = 1.0
"""Do not mention a batch that takes less."""


def progress_line(now: StreamStatus, dead_letters: Path | str | None = None) -> str:
    """Return how far a stream is, how fast, how far behind, and what was refused."""
    done = now.totals
    parts = [
        counted(done.batches, "batch", "batches"),
        f"{counted(done.messages, 'message')} in",
        f"{done.published:,} out",
    ]
    if now.state is State.ENDED and done.took_s:
        parts.append(f"{done.messages / done.took_s:,.0f}/s in {done.took_s:.2f} s of batches")
    elif done.batches:
        pace = now.pace
        parts.append(f"the newest batch in {pace.batch_s:.2f} s at {pace.rows_per_s:,.0f}/s")
    if now.pace.lag is not None:
        parts.append(f"{now.pace.lag:,} behind")
        if now.pace.margin is not None and now.pace.margin < now.pace.lag:
            parts.append(f"these are lost after {now.pace.margin:,} more: lengthen the history")
    if now.held is not None:
        parts.append(f"{counted(now.held, 'key')} held")
    if done.repeated:
        parts.append(f"{done.repeated:,} written by an earlier run")
    if done.refused:
        parts.append(f"{done.refused:,} refused (see {dead_letters})")
    if done.unmatched:
        parts.append(f"{counted(done.unmatched, 'removal')} found no record")
    if now.merger_failures:
        parts.append(f"{counted(now.merger_failures, 'merge')} failed")
    doing = _doing(now)
    if doing:
        parts.append(doing)
    if now.restarts:
        parts.append(counted(now.restarts, "restart"))
    return f"{now.name}: {', '.join(parts)}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 batch`; the plural adds an s if none is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def _doing(now: StreamStatus) -> str:
    """Return why nothing seems to happen, or an empty text."""
    match now.state:
        case State.RUNNING if now.working_s is not None:
            return f"at a batch for {now.working_s:.0f} s" * (now.working_s >= WORKING_S_MIN)
        case State.RUNNING if now.finds_nothing:
            return "nothing new to read"
        case State.RUNNING:
            has_read = now.totals.batches or now.pace.batch is not None
            return "" if has_read else "getting ready to read"
        case State.WAITING:
            return "waiting for its next start"
        case state:
            return state.value


def restart_line(error: str, pause_s: float) -> str:
    """Return why a stream has stopped, and when it starts again."""
    return f"{error}; it is started again in {pause_s:.0f} s"
