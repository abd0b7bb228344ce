"""Late rows: what is older at the socket than its subscription's `max_age` promised. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.sse import Styles, event
from conflation.count import count_of
from conflation.duration import MILLISECOND
from conflation.outputs import Output, Rows


class Cause(StrEnum):
    """Where a row's time went."""

    CLIENT = "client"
    QUEUE = "queue"
    SOURCE = "source"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Moment:
    """What a stream knows once it has written rows.

    `has_unsent`: the peer, and so the kernel, had not taken what was written before.
    `is_behind`: these rows waited for earlier ones to be written. `arrival_ages_ms`: how old
    each topic's newest messages were when the gateway got them.
    """

    now_ms: int
    has_unsent: bool
    is_behind: bool
    arrival_ages_ms: dict[str, int]


def late_events(outputs: Iterable[Output], styles: Styles, moment: Moment) -> list[bytes]:
    """One `late` event for each seat that had late rows here."""
    oldest = _oldest(outputs, styles)
    events: list[bytes] = []
    for (name, topic), first_ms in oldest.items():
        max_age_ns = styles[name, topic].subscription.shown.max_age_ns
        age_ms = moment.now_ms - first_ms
        if max_age_ns is not None and age_ms * MILLISECOND > max_age_ns:
            cause = cause_of(moment, topic, max_age_ns)
            events.append(event("late", {"sub": name, "age_ms": age_ms, "cause": cause}))
    return events


def cause_of(moment: Moment, topic: str, max_age_ns: int) -> Cause:
    """The first that explains it, from the peer's end backwards."""
    if moment.has_unsent:
        return Cause.CLIENT
    if moment.is_behind:
        return Cause.QUEUE
    if moment.arrival_ages_ms.get(topic, 0) * MILLISECOND > max_age_ns:
        return Cause.SOURCE
    return Cause.GATEWAY


def _oldest(outputs: Iterable[Output], styles: Styles) -> dict[tuple[str, str], int]:
    """Time of the first message, by seat; openings are old by nature and promise nothing."""
    oldest: dict[tuple[str, str], int] = {}
    for output in outputs:
        if not isinstance(output, Rows):
            continue
        seat = output.name, output.topic
        style = styles[seat]
        if style.subscription.shown.max_age_ns is None:
            continue
        live = (frame for frame in output.batch.frames if frame.offset > style.cut.offset)
        times = [count_of(frame).first_ms for frame in live]
        if times:
            oldest[seat] = min(*times, oldest.get(seat, times[0]))
    return oldest
