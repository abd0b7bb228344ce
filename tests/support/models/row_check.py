"""A row with a value, checked by the rules: the messages it stands for, its delta, its time."""

from __future__ import annotations

import json

from tests.support.models.boards import Event, Value, changed_fields, compact
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.replica import ReplicaModel
from tidegate.conflation.frame import Frame, Row
from tidegate.keys.merging import Merger


class RowChecks(ReplicaModel):
    """What a row must be, and what it must not be."""

    def stands_for(self, event: Event) -> list[Event]:
        """The messages that were conflated into a row of this event."""
        if self.lane_spec.sealed(event):
            assert event.offset not in self.exempt, "no repeat"
            return [event]
        place = self.place(event)
        since = self.told_of(place)
        assert event.offset > since, "no repeat, no step back"
        puts = [
            put
            for put in self.puts()
            if since < put.offset <= event.offset
            and self.place(put) == place
            and not self.lane_spec.sealed(put)
        ]
        if not self.lane_spec.interval_ms and not self.lane_spec.no_empties:
            assert puts[0] is event, "every message, in order"
        return puts

    def behind_a_removal(self, event: Event, stood: list[Event], count: int) -> list[Event]:
        """Who is behind, or never held the key, may not receive of what came and went before."""
        if self.tells_all() or not self.lane_spec.oof or self.lane_spec.sealed(event):
            return stood
        left = [e.offset for e in self.events() if e.gone and e.key == event.key]
        place, told = self.place(event), self.told.get(self.place(event), 0)
        puts = [put for put in self.puts() if told < put.offset <= event.offset]
        unsaid = [
            put for put in puts if self.place(put) == place and not self.lane_spec.sealed(put)
        ]
        if len(stood) < count <= len(unsaid):
            self.swallowed -= count - len(stood)
            return unsaid[-count:]
        for offset in left:
            later = [put for put in stood if put.offset > offset]
            if len(later) == count:
                self.swallowed += len(stood) - count
                return later
        return stood

    def merges_apart(self, stood: list[Event]) -> bool:
        """Whether a merger saw values that were merged already; then it is its own affair."""
        first, last = stood[0].offset, stood[-1].offset
        parted = any(first <= cut < last for cut in self.others_cuts)
        return isinstance(self.lane_spec.merge, Merger) and (parted or not self.at_once)

    def combined(self, stood: list[Event]) -> Value:
        """The value of a row."""
        if self.lane_spec.combine is None:
            return stood[-1].value
        return self.lane_spec.combine([event.value for event in stood])

    def check_newest(self, event: Event) -> None:
        """Rule interval-2, for those who take at once."""
        if not self.at_once or not self.lane_spec.interval_ms or self.lane_spec.sealed(event):
            return
        if (
            self.lane_spec.flush_text
            or isinstance(self.lane_spec.merge, Merger)
            or self.lane_spec.focus.grouping
        ):
            return
        if self.muddled():
            return  # what was held before a removal is sent if an exempt message is between
        later = [
            put
            for put in self.puts()
            if self.place(put) == self.place(event)
            and not self.lane_spec.sealed(put)
            and put.offset > event.offset
        ]
        assert not later, "a row is the newest of its key when it is flushed"

    def check_delta(self, frame: Frame, event: Event, stood: list[Event]) -> None:
        """Rule delta-1: what is in a delta, and when there must be one."""
        patch = frame.patch if isinstance(frame, Row) else None
        shown = self.lane_spec.shown
        changed: set[str] = set()
        for put in stood:
            changed |= changed_fields(shown(put.before or {}), shown(put.value))
        focus = self.lane_spec.focus
        keys = {focus.grouping} if focus.grouping else {*(focus.fields or self.topic.key)}
        if patch is not None:
            names = set(json.loads(patch))
            assert changed - keys <= names <= changed | keys, "the fields that changed, and no more"
        elif self.delta_is_due(frame, event, stood):
            final = shown(event.value)
            if any(final.get(name, 0) is None or _deep(stood, name) for name in changed):
                return
            told = {name: final[name] for name in final if name in keys | changed}
            told |= {name: None for name in changed if name not in final}
            assert len(compact(told)) >= len(frame.payload), "a delta would have been shorter"

    def delta_is_due(self, frame: Frame, event: Event, stood: list[Event]) -> bool:
        """Whether the full value has no excuse."""
        lane_spec = self.lane_spec
        if self.wanted is not None:
            return False  # what a change lets go is told in full
        if (
            not (lane_spec.delta and self.at_once and frame.key in self.holds)
            or frame.key in self.fresh
        ):
            return False
        if lane_spec.over_half_full or lane_spec.combine or self.lane_spec.sealed(event):
            return False
        if stood[0].at <= self.joined_at + lane_spec.interval_ns + lane_spec.tick_ns:
            return False
        if not lane_spec.interval_ms and len(stood) > 1:
            return False  # an empty message before it is counted with it
        if lane_spec.oof and not self.tells_all():
            return False  # what came and went is still to be counted
        since = max(self.told_of(self.place(event)), self.cut)
        others = [e for e in self.events() if e.key == event.key and since <= e.offset]
        return not any(e.gone or e.before is None or lane_spec.sealed(e) for e in others)

    def check_empty(self, event: Event, stood: list[Event], value: Value) -> None:
        """Rule delta-4."""
        if (
            not (self.lane_spec.no_empties and self.lane_spec.delta and self.at_once)
            or self.lane_spec.over_half_full
        ):
            return
        settled = stood[0].at > self.joined_at + self.lane_spec.interval_ns + self.lane_spec.tick_ns
        since = self.told_of(self.place(event))
        left = any(e.gone or seals(self.lane_spec, e) for e in self.events() if e.offset >= since)
        if settled and not left and event.key in self.holds and event.key not in self.fresh:
            assert self.holds[event.key] != value, "an empty delta"

    def check_passed_over(self, event: Event) -> None:
        """Rule delta-4: an exempt row may only pass over messages that ended in the value sent."""
        lane_spec = self.lane_spec
        if not (lane_spec.no_empties and lane_spec.interval_ms and lane_spec.sealed(event)):
            return
        if lane_spec.oof:
            return  # a removal may have taken them away
        alike = [
            put
            for put in self.undelivered()
            if self.place(put) == self.place(event)
            and not lane_spec.sealed(put)
            and put.offset not in self.empty
        ]
        # With a later message they are one row, which comes behind the exempt one.
        if not alike or alike[-1].offset > event.offset:
            return
        self.empty.update(put.offset for put in alike)
        if self.at_once and event.key in self.holds and event.key not in self.fresh:
            assert self.holds[event.key] == lane_spec.shown(alike[-1].value), "passed over"

    def check_rate(self, own_key: str, now: int) -> None:
        """Rule interval-1."""
        last = self.told_at.get(own_key)
        self.told_at[own_key] = now
        if last is None or not self.at_once or self.lane_spec.flush_text:
            return
        together = last == now and (self.lane_spec.over_half_full or self.exempt)
        assert together or now - last >= self.lane_spec.interval_ns, (
            "one update per key per interval"
        )

    def keeps_places(self) -> bool:
        """Whether a row may stand where an earlier message of its key stood."""
        replaces = self.lane_spec.replaces and bool(self.lane_spec.interval_ms)
        return replaces or isinstance(self.lane_spec.merge, Merger)

    def place_among_rows(self, event: Event, stood: list[Event]) -> int:
        """The offset of the message that gave a row its place (rules merge-4 and merge-6)."""
        if self.lane_spec.replaces and self.lane_spec.interval_ms:
            return stood[0].offset
        if self.merges_apart(stood):
            return self.order
        moved = [put for put in stood[1:] if not self.lane_spec.stays(put.value)]
        if isinstance(self.lane_spec.merge, Merger):
            return moved[-1].offset if moved else stood[0].offset
        return event.offset

    def check_order(self, place: int) -> None:
        """Rule merge-4, within an answer; a round has the order of its begin (rule interval-10)."""
        in_rounds = self.lane_spec.interval_ms and not (self.lane_spec.counts or self.at_once)
        if not self.lane_spec.flush_text and not in_rounds:
            assert place >= self.order, "out of order"
            self.order = place


def seals(lane_spec: LaneSpec, event: Event) -> bool:
    """Whether a message is a row of its own."""
    return not event.gone and lane_spec.sealed(event)


def _deep(stood: list[Event], name: str) -> bool:
    """Whether nulls or nested objects are in play, where patches have their own limits."""
    values = [value for e in stood for value in (e.value, e.before or {})]
    return any(name in value and isinstance(value[name], dict | None) for value in values)
