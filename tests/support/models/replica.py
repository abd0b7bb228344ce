"""What a client has received so far, and what happened on the board that it follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.models.boards import MILLISECOND, Event, TopicModel, Value, key_text
from tests.support.models.lane_spec import LaneSpec
from tidegate.conflation.frame import Frame

Place = tuple[str, str]
"""A key, and the value of the `match` fields: messages of one place may conflate."""

ScriptLine = tuple[Any, ...]


@dataclass(eq=False)
class RatedReplay:
    """Rule resume-9: `gap_ns` is how long a row waits after the one before, sent at `last`."""

    gap_ns: Callable[[Event, Event], int]
    last: int
    before: Event | None = None

    def due(self, event: Event) -> int:
        """When a row may go; the first one at once."""
        return self.last if self.before is None else self.last + self.gap_ns(self.before, event)

    def receive(self, event: Event, now: int) -> None:
        """At most a second's worth is made up for."""
        due = self.due(event)
        assert now >= due, "a row before its time"
        self.last, self.before = max(due, now - 1_000 * MILLISECOND), event


@dataclass(eq=False)
class Moved:
    """A change of board that the client has not received all of: what it must hold in the end."""

    holds: dict[str, Value]
    through: int


@dataclass(eq=False)
class ReplicaModel:
    """What a client holds, and what it was told: `told` is the offset that a place stands at.

    `exempt` and `empty` are offsets: of exempt messages that it was sent, and of messages without a
    change that those passed over (rule delta-4).
    """

    session: str
    name: str
    topic: TopicModel
    lane_spec: LaneSpec
    fast: bool
    snapshot: bool
    joined_at: int
    cut: int
    script: deque[ScriptLine] = field(default_factory=deque)
    holds: dict[str, Value] = field(default_factory=dict)
    told: dict[Place, int] = field(default_factory=dict)
    told_at: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    exempt: set[int] = field(default_factory=set)
    empty: set[int] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)
    rows: int = 0
    stood: int = 0
    swallowed: int = 0
    matched_before: int = 0
    mark: int = 0
    order: int = 0
    opened: int = 0
    midway: bool = False
    has_changed: bool = False
    uncounted: int = 0
    unreported: set[str] = field(default_factory=set)
    row_at: dict[str, int] = field(default_factory=dict)
    paused: bool = False
    lagging: bool = False
    was_behind: bool = False
    moved: Moved | None = None
    replay: RatedReplay | None = None
    limits: dict[int, int] = field(default_factory=dict)
    others_cuts: list[int] = field(default_factory=list)
    wanted: LaneSpec | None = None
    wanted_by: int = 0

    def __post_init__(self) -> None:
        self.mark = self.cut

    @property
    def at_once(self) -> bool:
        """Whether it has taken everything so far, as soon as it was there."""
        return self.fast and not self.lagging

    def events(self) -> list[Event]:
        """Everything since the cut."""
        return self.topic.events(self.lane_spec.focus, self.cut)

    def puts(self) -> list[Event]:
        """Messages that it asked for."""
        return [event for event in self.events() if not event.gone]

    def place(self, event: Event) -> Place:
        """What the message may conflate with."""
        fields = self.lane_spec.match_fields
        return event.key, key_text(event.value, fields) if fields else ""

    def undelivered(self) -> list[Event]:
        """Messages that no row, or removal, stands for yet."""
        return [event for event in self.puts() if not self.is_told(event)]

    def is_told(self, event: Event) -> bool:
        """Whether a row, or a removal, stands for this message."""
        is_empty_maybe = self.lane_spec.no_empties and not self.lane_spec.interval_ms
        if self.lane_spec.sealed(event) and not is_empty_maybe:
            return event.offset in self.exempt
        return event.offset <= self.told_of(self.place(event))

    def told_of(self, place: Place) -> int:
        """The newest offset that was told of a place, be it by a removal."""
        return max(self.told.get(place, 0), self.removed.get(place[0], 0))

    def last_events(self) -> dict[str, Event]:
        """The newest thing that happened to each key."""
        return {event.key: event for event in self.events()}

    def due_since(self) -> dict[str, Event]:
        """For each key that the client should receive of: what it has been waiting for longest."""
        wanted: dict[str, Event] = {}
        undelivered = {id(event) for event in self.undelivered()}
        last = {event.key: event for event in self.puts()}
        for event in self.events():
            if self.lane_spec.oof:
                if not self.differs(event):
                    wanted.pop(event.key, None)
                else:
                    wanted.setdefault(event.key, event)
            elif id(event) in undelivered:
                is_news = self.differs(event) and self.differs(last[event.key])
                if self.lane_spec.no_empties and (event.offset in self.empty or not is_news):
                    wanted.pop(event.key, None)
                else:
                    wanted.setdefault(event.key, event)
            elif event.gone and self.lane_spec.focus.grouping:
                wanted.pop(event.key, None)  # its row is made when it is flushed (rule view-2)
        return wanted

    def differs(self, event: Event) -> bool:
        """Whether what a client holds is not what this event left behind."""
        if event.gone:
            return event.key in self.holds
        if self.lane_spec.no_empties and event.key in self.holds:
            return self.holds[event.key] != self.lane_spec.shown(event.value)
        if self.lane_spec.no_empties and self.cut and not self.snapshot:
            return False  # it may be what the lane sent last, before this one came
        return not self.is_told(event)

    def event_at(self, frame: Frame) -> Event:
        """What a row tells of."""
        assert frame.offset > self.cut, "rows at or below the cut never come from the lane"
        found = self.topic.events(self.lane_spec.focus, frame.offset - 1)
        for event in found:
            if (event.offset, event.key) == (frame.offset, self.own_key(frame)):
                assert frame.removed == bool(event.gone)
                return event
        raise AssertionError(f"nothing happened to {frame.key} at {frame.offset}")

    def own_key(self, frame: Frame) -> str:
        """The key of the row on its board, which may not be the one that it is told by."""
        focus = self.lane_spec.focus
        if focus.fields is None or not self.topic.key or focus.derived:
            return frame.key
        return key_text(self.topic.messages[frame.offset - 1].value, focus.fields)

    def told_key(self, event: Event) -> str:
        """The key that a row of this event is told by (rule interval-9)."""
        by_record = self.topic.key and not self.lane_spec.focus.grouping
        return event.cause.key if by_record and not self.lane_spec.focus.top else event.key

    def latest(self, event: Event) -> bool:
        """Whether the client must end with this value: not where several keys share a row's key."""
        apart = self.lane_spec.match_fields or any(
            self.lane_spec.sealed(put) for put in self.puts()
        )
        if apart and self.lane_spec.replaces:
            return False
        same = [put for put in self.puts() if self.told_key(put) == self.told_key(event)]
        return all(put.offset <= event.offset for put in same)

    def muddled(self) -> bool:
        """Whether exempt messages stand between removals: then counts may come with later rows.

        Also those that the lane held at the join: what came after them was kept apart by them.
        """
        held_since = self.joined_at - self.lane_spec.interval_ns - self.lane_spec.tick_ns
        return self.lane_spec.oof and any(
            (event.offset > self.cut or event.at >= held_since)
            and not event.gone
            and self.lane_spec.sealed(event)
            for event in self.topic.events(self.lane_spec.focus)
        )

    def tells_all(self) -> bool:
        """Whether it has been told of all that the lane told, from the beginning."""
        board = self.topic.events(self.lane_spec.focus)
        held_since = self.joined_at - self.lane_spec.interval_ns - self.lane_spec.tick_ns
        calm = not any(held_since <= e.at and e.offset <= self.cut for e in board)
        return self.at_once and not self.was_behind and self.snapshot and calm
