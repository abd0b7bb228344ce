"""What a subscription asks for, in words that the engine and the naive model both understand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.models.boards import MILLISECOND, Event, Focus, Predicate, Value
from tidegate.conflation.subscription import FeedId, LaneId, Window
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.order import Order
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec

Combine = Callable[[list[Value]], Value]


@dataclass(frozen=True)
class LaneSpec:
    """A lane: each option beside what it means.

    `dropped` are fields that are not selected; `stays` are messages that a merger passes over.
    """

    focus: Focus
    interval_ms: int = 0
    pace: str = "batch"
    leading: bool = False
    delta: bool = False
    oof: bool = False
    no_empties: bool = False
    counted: bool = False
    dropped: tuple[str, ...] = ()
    merge: Reduce | Merger | None = None
    combine: Combine | None = field(default=None, compare=False, repr=False)
    stays: Predicate = field(default=lambda _: False, compare=False, repr=False)
    match_fields: tuple[str, ...] = ()
    replaces: bool = False
    never_text: str = ""
    never: Predicate = field(default=lambda _: False, compare=False, repr=False)
    flush_text: str = ""
    flushes: Predicate = field(default=lambda _: False, compare=False, repr=False)

    @property
    def interval_ns(self) -> int:
        """0 for every message."""
        return self.interval_ms * MILLISECOND

    @property
    def tick_ns(self) -> int:
        """What deadlines are rounded up to (rule interval-5)."""
        return min(self.interval_ns // 20, 50 * MILLISECOND) if self.pace == "key" else 0

    @property
    def counts(self) -> bool:
        """Whether its rows say how many messages they stand for."""
        special = (self.pace == "key", self.leading, self.delta, self.counted, self.replaces)
        rules = (self.merge, self.match_fields, self.never_text, self.flush_text)
        return bool(self.interval_ms) and any((*special, *rules))

    @property
    def over_half_full(self) -> bool:
        """Whether a key may have several rows in one flush."""
        return bool(self.match_fields or self.never_text or isinstance(self.merge, Merger))

    def sealed(self, event: Event) -> bool:
        """Whether a message is never to be conflated (rule merge-1)."""
        return event.exempt or (bool(self.interval_ms) and self.never(event.value))

    def shown(self, value: Value) -> Value:
        """The fields that were selected."""
        return {name: part for name, part in value.items() if name not in self.dropped}

    def feed_id(self, sow_key: tuple[str, ...]) -> FeedId:
        """The board."""
        focus = self.focus
        wanted = Filter.parse(focus.filter_text) if focus.filter_text else None
        shape: Window | Projection | None = None
        fields = sow_key if focus.fields is None else focus.fields
        if focus.top:
            order = Order.parse(focus.order_text) if focus.order_text else None
            shape = Window(order, focus.top, focus.skip)
        if focus.grouping:
            shape = projection(focus)
            fields = (focus.grouping,)
        return FeedId(spec(fields), wanted, shape)

    def lane_id(self, sow_key: tuple[str, ...]) -> LaneId:
        """The lane."""
        return LaneId(
            self.feed_id(sow_key),
            self.interval_ns,
            self.pace,
            leading=self.leading,
            delta=self.delta,
            oof=self.oof,
            no_empties=self.no_empties,
            counted=self.counted,
            select=Select.parse(f"[{','.join('-/' + name for name in self.dropped)}]")
            if self.dropped
            else None,
            merge=self.merge,
            match=spec(self.match_fields) if self.match_fields else None,
            replaces=self.replaces,
            never=Filter.parse(self.never_text) if self.never_text else None,
            flush_on=Filter.parse(self.flush_text) if self.flush_text else None,
        )


def spec(fields: tuple[str, ...]) -> KeySpec:
    """A key of top-level fields."""
    return KeySpec.of(f"/{name}" for name in fields)


def projection(focus: Focus) -> Projection:
    """The groups of a board."""
    return Projection.parse(focus.projection_text, 0, f"[/{focus.grouping}]", 0)
