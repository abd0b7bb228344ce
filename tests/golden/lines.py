"""The engine's outputs as lines of text: the contract's words and plain values.

No line has a class name or an error's text, because they may change without a change for clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.outputs import (
    Announcement,
    CohortReady,
    Goodbye,
    GroupBegin,
    GroupEnd,
    HistoryWanted,
    Output,
    QueueCrossed,
    RecordsExpired,
    Resumed,
    Rows,
    SessionClosed,
    SessionReady,
    Subscribed,
    Unsubscribed,
)
from tidegate.conflation.sessions.accounting import EngineStats, SessionStats, TopicStats
from tidegate.conflation.tracing.decisions import Decision

Lines = Iterator[str]


def row_line(frame: Frame) -> str:
    """A row: its op, position, time, key, receipt, bytes."""
    count = receipt_of(frame)
    receipt = f"{count.messages} {count.first} {count.first_ms}"
    text = f"{frame.offset} {frame.timestamp_ms} {frame.key!r} {receipt}"
    if isinstance(frame, Tombstone):
        return f"oof {text} {frame.reason} {frame.payload!r}"
    exempt = " exempt" if frame.exempt else ""
    if isinstance(frame, Row) and frame.patch is not None:
        return f"delta {text} {frame.patch!r} of {frame.payload!r}{exempt}"
    return f"value {text} {frame.payload!r}{exempt}"


def output_lines(output: Output) -> Lines:
    """One output of a session."""
    match output:
        case Rows():
            batch = output.batch
            yield f"{output.op} {output.name} {output.topic} {output.epoch} low {batch.low_water}"
            for frame in batch.frames:
                yield f"  {row_line(frame)}"
        case GroupBegin():
            yield f"group_begin {output.name} {output.topic} {output.rows}"
        case GroupEnd():
            yield f"group_end {output.name} {output.topic} {output.rows} {output.bookmark}"
        case Resumed():
            gap = f"{output.gap_messages} {output.gap_ms} {output.bookmark!r}"
            yield f"resumed {output.name} {output.topic} {output.mode} {gap}"
        case Subscribed():
            yield f"subscribed {output.name} {output.topic}"
        case Unsubscribed():
            yield f"unsubscribed {output.name} {output.topic} {output.reason}"
        case Goodbye():
            yield f"goodbye {output.reason} {output.reason.reconnect}"


def announcement_values(event: Announcement) -> tuple[str, dict[str, Any]]:
    """An announcement of the engine as its word and plain values."""
    match event:
        case SessionReady():
            return "ready", {"session": event.session}
        case SessionClosed():
            reason = None if event.reason is None else str(event.reason)
            return "closed", {"session": event.session, "reason": reason}
        case RecordsExpired():
            return "expired", {"topic": event.topic, "epoch": event.epoch, "through": event.through}
        case QueueCrossed():
            return "crossed", {
                "session": event.session,
                "upper": event.upper,
                "messages": event.messages,
                "bytes": event.bytes,
            }
        case HistoryWanted():
            name, topic = event.subscriber
            return "past", {
                "session": event.session,
                "name": name,
                "topic": topic,
                "epoch": event.epoch,
                "after": event.after,
            }
        case CohortReady():
            return "ready together", {"sessions": list(event.cohort.members)}


def decision_text(decision: Decision) -> str:
    """A decision of a trace."""
    counts = (decision.earlier, decision.messages, decision.rows, decision.due)
    place = f"{decision.board_key!r} {decision.offset}"
    return f"{decision.now} {decision.what} {place} {counts} {decision.why!r}"


def engine_stats_lines(stats: EngineStats) -> Lines:
    """Counters of the engine."""
    remedies = (stats.remedies.forced, stats.remedies.background, stats.remedies.unsubscribed)
    yield f"sessions {stats.sessions} flushes {stats.flushes} reliefs {remedies}"
    yield f"unsubscribed {_counts(stats.unsubscribed.items())}"
    yield f"resumed {_counts(stats.resumed.items())}"
    for topic in stats.topics:
        yield topic_stats_line(topic)


def topic_stats_line(stats: TopicStats) -> str:
    """Counters of a topic."""
    received = (stats.messages_in, stats.removals_in, stats.bytes_in)
    size = (stats.keys, stats.boards, stats.lanes, stats.subscriptions)
    filtering = (stats.offered, stats.filtered, stats.matched)
    outcomes = (stats.delivered, stats.conflated, stats.waiting, stats.dropped)
    journal = (stats.journal_messages, stats.journal_bytes)
    dropped = _counts(stats.dropped_by)
    return f"topic {stats.topic} {received} {size} {filtering} {outcomes} {dropped} {journal}"


def session_stats_lines(stats: SessionStats) -> Lines:
    """Counters of a session."""
    yield f"session {stats.session} {stats.queued_messages} {stats.queued_bytes}"
    for one in stats.subscriptions:
        outcomes = (one.matched, one.delivered, one.conflated, one.waiting, one.filtered)
        yield f"subscription {one.name} {one.topic} {one.lane} {outcomes}"


def _counts(pairs: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}={count}" for name, count in sorted(pairs))
