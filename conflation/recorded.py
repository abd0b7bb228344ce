"""Conflation of recorded messages: an interval measured on the timeline of publication."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.duration import MILLISECOND
from conflation.frame import Frame

Row = tuple[str, Frame]


def conflate_recorded(rows: Sequence[Row], interval_ns: int, pace: str) -> list[Frame]:
    """What the interval would have let through, told by the messages' own times.

    As in AMPS a fast replay with `1s` has one message per key and *recorded* second. Takes rows
    (conflation key, frame) in the order of publication, gives frames in the order of flushes.
    """
    interval_ms = max(1, interval_ns // MILLISECOND)
    if pace == "key":
        return _key_by_key(rows, interval_ms)
    return _all_together(rows, interval_ms)


def _all_together(rows: Sequence[Row], interval_ms: int) -> list[Frame]:
    flushed: list[Frame] = []
    held: dict[str, Frame] = {}
    due_ms = 0
    for board_key, frame in rows:
        if held and frame.timestamp_ms >= due_ms:
            flushed += held.values()
            held = {}
        if not held:
            due_ms = frame.timestamp_ms + interval_ms
        held.pop(board_key, None)
        held[board_key] = frame
    return flushed + list(held.values())


def _key_by_key(rows: Sequence[Row], interval_ms: int) -> list[Frame]:
    flushed: list[tuple[int, Frame]] = []
    held: dict[str, tuple[int, Frame]] = {}
    for board_key, frame in rows:
        due_ms, earlier = held.get(board_key, (0, None))
        if earlier is None or frame.timestamp_ms >= due_ms:
            if earlier is not None:
                flushed.append((due_ms, earlier))
            due_ms = frame.timestamp_ms + interval_ms
        held[board_key] = (due_ms, frame)
    flushed += held.values()
    return [frame for _, frame in sorted(flushed, key=lambda row: (row[0], row[1].offset))]
