"""One subscription and all that it received, checked against the rules row by row.

The subscriber does what a client does: a value replaces, a delta is applied, a removal takes away.
What it then holds is compared with what the naive model says (tests/support/models/boards.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.models.boards import MILLISECOND, Event, Value, patched
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.replica import Moved, ScriptLine
from tests.support.models.row_check import RowChecks
from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.options.grant import lane_text
from tidegate.conflation.outputs import GroupBegin, GroupEnd, Output, Resumed, Rows
from tidegate.keys.merging import Merger


class SubscriberModel(RowChecks):
    """One subscription: it hears, it changes, and it is looked at."""

    def receive(self, output: Output, bytes_max: int, now: int) -> None:
        """One output: an opening to the letter, live rows by the rules."""
        match output:
            case Resumed(mode=mode, gap_messages=gap):
                assert self.script.popleft() == ("resumed", mode.value, gap)
            case GroupBegin(rows=rows):
                assert self.script.popleft() == ("begin", rows)
                self.opened = 0
                self.holds.clear()
            case GroupEnd(bookmark=bookmark):
                assert self.script.popleft() == ("end", bookmark)
            case Rows():
                batch = output.batch
                assert (output.name, output.topic) == (self.name, self.topic.name)
                assert batch.frames, "an empty flush sends nothing"
                assert _fits(batch.frames, bytes_max)
                for frame in batch.frames:
                    self.receive_row(output.op, frame, now)
                self.midway = batch.low_water is None
                self.receive_id(batch.low_water)

    def receive_row(self, op: str, frame: Frame, now: int) -> None:
        """An opening's row or a live one."""
        if self.script and self.script[0][0] in ("snapshot", "publish", "oof"):
            told = "oof" if frame.removed else op
            expected = self.next_line(frame)
            assert expected[:2] == (told, frame.key)
            if frame.removed:
                self.holds.pop(frame.key, None)
            else:
                assert self.lane_spec.focus.derived or expected[2] == frame.offset
                assert json.loads(frame.payload) == expected[3]
                self.holds[frame.key] = expected[3]
            if self.replay is not None:
                self.replay.receive(
                    self.topic.events(self.lane_spec.focus, frame.offset - 1)[0], now
                )
            return
        assert not self.script, f"a live row before {self.script[0]}"
        assert op == "publish"
        if self.moved is not None:
            self.receive_move(frame)
            return
        if isinstance(frame, Tombstone):
            self.receive_removal(frame, now)
        else:
            self.receive_value(frame, now)

    def next_line(self, frame: Frame) -> ScriptLine:
        """Groups that one message touched have no order among themselves.

        And a board knows of what left a group only since it was made (rule view-2): a snapshot's
        groups may stand where an older change put them, but they do stand in that order.
        """
        first = self.script[0]
        lines = [line for line in self.script if line[0] == first[0]]
        if first[0] != "snapshot":
            lines = [line for line in lines if line[2:3] == first[2:3]]
        for line in lines if self.lane_spec.focus.grouping else ():
            if line[1] == frame.key:
                if line[0] == "snapshot":
                    assert self.opened <= frame.offset <= line[2], "oldest row first"
                    self.opened = frame.offset
                self.script.remove(line)
                return line
        return self.script.popleft()

    def receive_removal(self, frame: Tombstone, now: int) -> None:
        """Rules removal-1 and removal-2."""
        assert self.lane_spec.oof, "a removal that nobody asked for"
        event = self.event_at(frame)
        assert event.gone == frame.reason.value
        as_it_is = not self.lane_spec.interval_ms and event.gone == "match" and event.record
        shown = self.lane_spec.shown(json.loads(event.record) if as_it_is else event.value)
        made_late = self.lane_spec.focus.grouping and self.lane_spec.interval_ms  # rule view-2
        assert made_late or json.loads(frame.payload) == shown, "the record as it last stood"
        assert frame.key in self.holds, "a removal of what was never held"
        for other in self.undelivered():
            if other.key == frame.key and other.offset < frame.offset:
                assert not self.lane_spec.sealed(other), "an exempt message was swallowed"
                self.swallowed += 1
        del self.holds[frame.key]
        self.removed[frame.key] = frame.offset
        self.row_at[frame.key] = now
        self.check_rate(frame.key, now)
        self.check_order(frame.offset)

    def receive_value(self, frame: Frame, now: int) -> None:
        """A row with a value: its truth, what it stands for, its delta."""
        event = self.event_at(frame)
        stood = self.stands_for(event)
        value = json.loads(frame.payload)
        count = receipt_of(frame)
        stood = self.behind_a_removal(event, stood, count.messages)
        uncounted = self.muddled() or stood[0].offset <= self.uncounted
        uncounted = uncounted or frame.key in self.unreported
        self.unreported.discard(frame.key)
        if self.lane_spec.counts and not uncounted:
            assert count.messages == len(stood), "what a row stands for"
            assert count.first == stood[0].offset
            assert count.first_ms == stood[0].at // MILLISECOND
        elif not self.lane_spec.interval_ms and not self.lane_spec.no_empties:
            assert count.messages == len(stood)
        if not self.merges_apart(stood):
            assert value == self.lane_spec.shown(self.combined(stood))
        self.check_delta(frame, event, stood)
        self.check_empty(event, stood, value)
        self.check_passed_over(event)
        self.hold(frame, value)
        self.check_newest(event)
        self.rows += 1
        self.row_at[frame.key] = now
        self.stood += len(stood)
        if self.lane_spec.no_empties and not self.lane_spec.interval_ms:
            empty = [put for put in self.undelivered() if put.offset < event.offset]
            alike = [put for put in empty if self.place(put) == self.place(event)]
            self.swallowed += sum(put not in stood for put in alike)
        if self.lane_spec.sealed(event):
            self.exempt.add(event.offset)
        replaced = not self.lane_spec.counts or event.offset <= self.uncounted
        if not self.lane_spec.sealed(event) or replaced:
            self.told[self.place(event)] = event.offset
        if not self.lane_spec.sealed(event):
            self.check_rate(event.key, now)
        settled = stood[0].at > self.joined_at + self.lane_spec.interval_ns + self.lane_spec.tick_ns
        if settled or not self.keeps_places():  # a slot may have its place from before the join
            self.check_order(self.place_among_rows(event, stood))
        self.fresh.discard(frame.key)

    def hold(self, frame: Frame, value: Value) -> None:
        """As a client does."""
        if isinstance(frame, Row) and frame.patch is not None:
            assert self.lane_spec.delta
            assert frame.key in self.holds, "a delta of what is not held"
            assert len(frame.patch) < len(frame.payload)
            self.holds[frame.key] = patched(  # type: ignore[assignment] # an object stays one
                self.holds[frame.key], json.loads(frame.patch)
            )
            assert self.holds[frame.key] == value, "a delta that does not lead to the value"
        else:
            self.holds[frame.key] = value

    def receive_id(self, low_water: int | None) -> None:
        """Rules resume-6 and resume-7: nothing at or below an id is still to come."""
        if self.moved is not None:
            return
        if low_water is None and self.lane_spec.merge is not None:
            self.order = (
                0  # where messages are combined an answer may end without an id (rule resume-7)
            )
        if low_water is None or self.script:
            assert low_water is None or self.replay is not None or self.script[0][0] == "end", (
                "an id before the last row"
            )
            return
        self.order = 0
        assert self.mark <= low_water <= self.topic.head, "ids never step back"
        self.mark = low_water
        self.check_position(low_water)

    def check_position(self, position: int) -> None:
        """What the client holds is what stood on the board, but for keys that changed since."""
        last = self.last_events()
        due = self.due_since()
        for event in due.values():
            newest = last[event.key]
            assert newest.offset > position, f"{event.key} of {newest.offset} at {position}"
        for event in self.undelivered():
            if self.lane_spec.sealed(event) or not self.lane_spec.interval_ms:
                wanted = due.get(event.key)
                empty = self.lane_spec.no_empties and (
                    wanted is None or wanted.offset > event.offset
                )
                assert event.offset > position or empty, "an id promised too much"

    def ask_lane(self, lane_spec: LaneSpec, now: int) -> None:
        """Rule change-1: what is held goes at the earlier of the old and the new deadline."""
        if lane_spec == self.lane_spec:
            self.wanted = None
            self.limits.clear()
            return
        held = self.lane_spec.interval_ns + self.lane_spec.tick_ns
        for event in self.due_since().values():
            due = self.limits.get(event.offset, event.at + held)
            self.limits[event.offset] = min(due, now + lane_spec.interval_ns + lane_spec.tick_ns)
        self.wanted, self.wanted_by = lane_spec, now + lane_spec.interval_ns
        self.told_at.clear()  # the first flush after a change is no update

    def see_lane(self, lane: str, now: int) -> None:
        """Whether the change that was asked for has come."""
        if self.wanted is None:
            return
        if lane == lane_text(self.wanted.lane_id(self.topic.key)):
            self.change_lane(self.wanted, now)
        else:
            assert now < self.wanted_by, "a change is due with the new interval"

    def change_lane(self, lane_spec: LaneSpec, now: int) -> None:
        """The old options do not hold any longer."""
        self.lane_spec = lane_spec
        self.wanted = None
        self.has_changed = True
        self.uncounted = self.topic.head  # a plain interval does not count
        self.joined_at = now
        self.told_at.clear()
        self.fresh.update(self.holds)
        self.order = 0

    def change_focus(self, lane_spec: LaneSpec, now: int) -> None:
        """Rule change-2: what is held is let go, then what the new board shows is made up for."""
        head = self.topic.head
        holds = self.will_hold() if self.moved is None else dict(self.moved.holds)
        for own, event in self.last_events().items():
            puts = [e for e in self.puts() if e.key == own]
            if event.gone and self.lane_spec.oof:
                holds.pop(own, None)
            elif puts and (self.moved is None or puts[-1].offset > self.moved.through):
                holds[own] = self.lane_spec.shown(puts[-1].value)
        old = self.topic.live(self.lane_spec.focus, head)
        new = self.topic.live(lane_spec.focus, head)
        if lane_spec.oof:
            holds = {own: value for own, value in holds.items() if own not in old or own in new}
        if self.snapshot:
            holds |= {own: lane_spec.shown(value) for own, (_, value) in new.items()}
        self.matched_before += len(self.puts())
        # What came and left while the old filter held it is reported by the key's next row.
        self.unreported.update(put.key for put in self.undelivered())
        self.change_lane(lane_spec, now)
        self.moved = Moved(holds, head)
        self.cut = head
        self.stood = self.swallowed = 0

    def will_hold(self) -> dict[str, Value]:
        """What it holds once it has taken what it begins with."""
        holds = dict(self.holds)
        for line in self.script:
            if line[0] == "begin":
                holds.clear()
            elif line[0] in ("snapshot", "publish"):
                holds[line[1]] = line[3]
            elif line[0] == "oof":
                holds.pop(line[1], None)
        return holds

    def receive_move(self, frame: Frame) -> None:
        """Rows of two boards, until all is received."""
        if frame.removed:
            self.holds.pop(frame.key, None)
            self.removed[frame.key] = frame.offset
        else:
            base = self.holds.get(frame.key, {})
            patch = frame.patch if isinstance(frame, Row) else None
            value = json.loads(frame.payload)
            assert patch is None or patched(base, json.loads(patch)) == value
            self.holds[frame.key] = value
            self.exempt.add(frame.offset)
            self.told[frame.key, ""] = max(frame.offset, self.told.get((frame.key, ""), 0))

    def drained(self, row: Any) -> None:
        """It has received all that there was."""
        self.order = 0
        if self.paused:
            return
        if self.lagging:
            self.told_at.clear()  # what is taken late belongs to the flushes that it missed
        self.lagging = False
        if self.moved is None:
            return
        later = {event.key for event in self.events()}
        for own in {*self.holds, *self.moved.holds} - later:
            assert self.holds.get(own) == self.moved.holds.get(own), f"{own} after a change"
        self.moved = None
        self.rows = row.delivered
        self.told_at.clear()

    def check_patience(self, now: int) -> None:
        """Rules interval-3 and merge-1 to merge-3: nothing is held longer than it may be."""
        lane_spec = self.lane_spec
        flush = max((e.offset for e in self.puts() if lane_spec.flushes(e.value)), default=0)
        for event in self.due_since().values():
            due = event.at + lane_spec.interval_ns + lane_spec.tick_ns
            due = self.limits.get(event.offset, due)
            if lane_spec.leading and self.lane_told_before(event):
                last = max(self.row_at.get(event.key, 0), self.joined_at)
                idle = event.at - last >= lane_spec.interval_ns
                due = event.at if idle else last + lane_spec.interval_ns + lane_spec.tick_ns
            limit = now < due if lane_spec.tick_ns == 0 or lane_spec.leading else now <= due
            assert limit, f"{event.key} of {event.offset} is held too long"
            if lane_spec.flush_text:
                assert event.offset >= flush, "flush_on lets everything go"

    def lane_told_before(self, event: Event) -> bool:
        """Whether what the lane told of a key is known here: not what it told before the join."""
        before = self.topic.events(self.lane_spec.focus)
        older = any(e.key == event.key and e.offset <= self.cut for e in before)
        return event.key in self.row_at or not older

    def is_midway(self) -> bool:
        """Whether rows are owed that were there before what the lane has now."""
        owed = self.midway or self.moved is not None or self.replay is not None
        return owed or (self.has_changed and not self.at_once)

    def check_figures(self, row: Any) -> None:
        """Rule account-1."""
        puts, undelivered = self.puts(), self.undelivered()
        if not self.lane_spec.focus.grouping and self.replay is None:
            assert row.matched == self.matched_before + len(puts), "matched"
        assert self.moved is not None or row.delivered == self.rows, "delivered"
        assert row.matched == row.delivered + row.conflated + row.waiting
        assert row.conflated >= 0
        simple = not (
            self.lane_spec.oof or self.lane_spec.no_empties or self.lane_spec.focus.grouping
        )
        if simple and not (
            isinstance(self.lane_spec.merge, Merger)
            or self.lane_spec.flush_text
            or self.is_midway()
        ):
            assert row.waiting == self.rows_waiting(undelivered), "waiting"

    def rows_waiting(self, undelivered: list[Event]) -> int:
        """How many rows are to come of the messages that were not told."""
        if not self.lane_spec.interval_ms:
            return len(undelivered)
        own = [event for event in undelivered if self.lane_spec.sealed(event)]
        newest = {self.place(event): event for event in undelivered}
        held = {self.place(event) for event in undelivered if not self.lane_spec.sealed(event)}
        if (
            not self.lane_spec.counts
        ):  # one that is exempt is the newest like any other (rule merge-1)
            held = {place for place in held if not self.lane_spec.sealed(newest[place])}
        return len(own) + len(held)

    def check_settled(self, row: Any) -> None:
        """Nothing is published any more, everything was taken: the client has the board."""
        assert not self.script
        assert row.waiting == 0
        self.check_position(self.topic.head)
        for own, event in self.last_events().items():
            if not event.gone and not self.lane_spec.combine:
                held = self.holds.get(self.told_key(event))
                if self.latest(event) and (held or self.differs(event)):
                    assert held == self.lane_spec.shown(event.value), own
            if event.gone and self.lane_spec.oof:
                assert own not in self.holds
        if self.snapshot and self.lane_spec.oof and not self.lane_spec.over_half_full:
            live = self.topic.live(self.lane_spec.focus, self.topic.head)
            assert set(self.holds) == set(live), "the very keys of the board"
        if self.muddled() or self.has_changed:
            return
        if not self.lane_spec.focus.grouping and (
            self.lane_spec.counts or not self.lane_spec.interval_ms
        ):
            unsaid = len(self.undelivered())
            assert self.stood + self.swallowed + unsaid == len(self.puts()), "receipts"
            assert self.lane_spec.oof or self.lane_spec.no_empties or unsaid == 0


def _fits(frames: Sequence[Frame], bytes_max: int) -> bool:
    """One row at least; rows of one offset stay together."""
    before = [frame for frame in frames if frame.offset != frames[-1].offset]
    first = frames[len(before)]
    return not before or sum(len(f.payload) for f in (*before, first)) <= bytes_max
