"""What a subscriber asks for, made definite: options, defaults and the topic's own key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from conflation.bookmark import Bookmark
from conflation.lane_id import LaneId
from keys.order import Order

BATCH_SIZE = 100


class Command(StrEnum):
    """The commands of AMPS."""

    SUBSCRIBE = "subscribe"
    SOW = "sow"
    SOW_AND_SUBSCRIBE = "sow_and_subscribe"
    DELTA_SUBSCRIBE = "delta_subscribe"
    SOW_AND_DELTA_SUBSCRIBE = "sow_and_delta_subscribe"

    @property
    def queries(self) -> bool:
        """Whether it begins with the state of the world."""
        return self not in (Command.SUBSCRIBE, Command.DELTA_SUBSCRIBE)

    @property
    def is_delta(self) -> bool:
        """Whether changed fields are enough."""
        return self in (Command.DELTA_SUBSCRIBE, Command.SOW_AND_DELTA_SUBSCRIBE)


class NotFound(StrEnum):
    """What a bookmark that cannot be found means (`bookmark_not_found`)."""

    EPOCH = "epoch"
    NOW = "now"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Rate:
    """Speed of a replay; one of the three is given. `max_gap_ns` bounds a recorded silence."""

    messages_per_s: int | None = None
    bytes_per_s: int | None = None
    times: float | None = None
    max_gap_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A bookmark subscription: every message since `start`, then the live ones.

    `start` is None for the journal's beginning (`epoch`), a bookmark, or wall time in
    milliseconds: the first message not older.
    """

    start: Bookmark | int | None
    not_found: NotFound = NotFound.NOW
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class Auto:
    """`conflation=auto`: the interval may move between these bounds."""

    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Shown:
    """What the shell shows beside the values; the engine only keeps it with the subscription."""

    timestamp: bool = False
    receipt: bool = False
    send_keys: bool = False
    no_sowkey: bool = False
    progress: bool = False
    max_age_ns: int | None = None
    auto: Auto | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """One request, decided: its command, its lane, and what it starts with.

    `resume` is an id that was seen before (CONTRACT 4.2), `replay` AMPS's bookmark. `order`
    is that of snapshot rows, `batch_size` how many of them go at a time. `topic` may be a pattern.
    `counted`: what a row stands for is shown.
    """

    topic: str
    command: Command
    lane_id: LaneId
    resume: Bookmark | None = None
    replay: Replay | None = None
    order: Order | None = None
    batch_size: int = BATCH_SIZE
    paused: bool = False
    shown: Shown = Shown()
    counted: bool = False
