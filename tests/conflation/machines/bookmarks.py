"""More configurations of the machine of `language.py`: replays, resumes, records that expire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.conflation.machines.language import PICK, RemovalMachine
from tests.support.models.boards import MILLISECOND, Event, Focus, TopicModel, Value
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.lockstep import (
    SECOND,
    Lockstep,
    journal_script,
    script_line,
    snapshot_script,
)
from tests.support.models.replica import RatedReplay, ScriptLine
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.subscription import Replay
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.rate import Rate

ALL = Focus()
HIGH = Focus("/n > 0", lambda value: value["n"] > 0)
GapNs = Callable[[Event, Event], int]


def recorded_ns(before: Event, event: Event) -> int:
    """The distance in time of two messages, as their stamps have it."""
    return (event.at // MILLISECOND - before.at // MILLISECOND) * MILLISECOND


RATES: tuple[tuple[Rate | None, GapNs], ...] = (
    (None, lambda *_: 0),
    (Rate(messages_per_s=10), lambda *_: SECOND // 10),
    (Rate(bytes_per_s=400), lambda before, _: len(before.payload) * SECOND // 400),
    (Rate(times=2.0), lambda before, event: recorded_ns(before, event) // 2),
    (
        Rate(times=1.0, max_gap_ns=60 * MILLISECOND),
        lambda before, event: min(60 * MILLISECOND, recorded_ns(before, event)),
    ),
)


class ReplayMachine(RemovalMachine):
    """Bookmark subscriptions that read the journal at a speed, then go on live (rule resume-8)."""

    lane_specs = (LaneSpec(ALL, 0), LaneSpec(HIGH, 0), LaneSpec(ALL, 100), LaneSpec(HIGH, 1_000))

    @rule()
    def sleep(self) -> None:
        """A driver that is very late: no more than a second is made up for."""
        self.lockstep.now += 3 * SECOND
        self.lockstep.serve()

    @precondition(lambda self: len(self.lockstep.subscribers) < 6)
    @rule(pick=PICK, start=st.integers(-2, 40), rate=PICK)
    def replay(self, pick: int, start: int, rate: int) -> None:
        lane_spec = self.lane_specs[pick % len(self.lane_specs)]
        chosen, gap_ns = RATES[rate % len(RATES)]
        member = self.lockstep.enter(self.topic, lane_spec, fast=True, snapshot=False)
        after = max(0, min(start, self.topic.head))
        member.replay = RatedReplay(gap_ns, self.lockstep.now)
        member.cut = after
        member.script.append(("resumed", "replay", self.topic.head - after))
        journal = self.topic.events(lane_spec.focus, after)
        member.script.extend(journal_script(lane_spec, journal))
        member.cut = self.topic.head
        place = Bookmark("e", after) if start >= 0 else None
        replay = Replay(place, rate=chosen)
        self.lockstep.subscribe(member, replay=replay)


@dataclass(frozen=True)
class Mark:
    """An id, and what a client held with it."""

    lane_spec: LaneSpec
    offset: int
    holds: dict[str, Value]


class ResumeMachine(RemovalMachine):
    """Clients that come back with an id that they saw (rules resume-2, resume-4 and resume-5)."""

    lane_specs = (
        *(
            LaneSpec(ALL, 100),
            LaneSpec(ALL, 100, oof=True),
            LaneSpec(HIGH, 100),
            LaneSpec(ALL, 0),
            LaneSpec(HIGH, 0),
        ),
        *(
            LaneSpec(HIGH, 100, oof=True),
            LaneSpec(ALL, 1_000, "key"),
            LaneSpec(ALL, 333, oof=True, delta=True),
        ),
        LaneSpec(Focus(order_text="/n", rank=lambda value: value["n"], top=2), 100, oof=True),
    )

    @precondition(lambda self: 0 < len(self.lockstep.subscribers) < 6)
    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        members = list(self.lockstep.subscribers.values())
        other = members[pick % len(members)]
        if other.script or not other.snapshot:
            return
        mark = Mark(other.lane_spec, other.mark, dict(other.holds))
        self.lockstep.leave(other)
        self.lockstep.advance(pick % 3 * 50 * MILLISECOND)
        member = self.lockstep.enter(self.topic, mark.lane_spec, fast=True, snapshot=True)
        member.holds = mark.holds
        member.script.extend(resume_script(self.topic, mark))
        member.fresh.update(mark.holds)
        self.lockstep.subscribe(member, resume=Bookmark("e", mark.offset))
        assert not member.script
        if mark.lane_spec.oof:
            live = self.topic.live(mark.lane_spec.focus, self.topic.head)
            shown = {own: mark.lane_spec.shown(value) for own, (_, value) in live.items()}
            assert member.holds == shown, "the very board after a resume"


def resume_script(topic: TopicModel, mark: Mark) -> list[ScriptLine]:
    """By which way a client goes on, and with which rows."""
    lane_spec, gap = mark.lane_spec, topic.head - mark.offset
    if lane_spec.focus.derived or (lane_spec.oof and lane_spec.focus.filter_text):
        return [("resumed", "snapshot", gap), *snapshot_script(topic, lane_spec)]
    events = topic.events(ALL, mark.offset)
    if not lane_spec.interval_ms:
        told = [e for e in events if not e.gone and lane_spec.focus.matches(e.value)]
        return [("resumed", "replay", gap), *(script_line(lane_spec, event) for event in told)]
    rows: list[Event] = []
    for own in {event.key for event in events}:
        said = [event for event in events if event.key == own]
        puts = [event for event in said if not event.gone]
        alone = [put for put in puts if put.exempt and lane_spec.focus.matches(put.value)]
        rows += [put for put in alone if put is not puts[-1] or (said[-1].gone and lane_spec.oof)]
        if said[-1].gone and lane_spec.oof:
            rows.append(said[-1])
        elif puts and lane_spec.focus.matches(puts[-1].value):
            rows.append(puts[-1])
    rows.sort(key=lambda event: event.offset)
    return [("resumed", "changes", gap), *(script_line(lane_spec, event) for event in rows)]


class ExpiryMachine(RemovalMachine):
    """Records that are not published again for a second are removed (rule removal-3)."""

    lane_specs = (LaneSpec(ALL, 100, oof=True), LaneSpec(HIGH, 0, oof=True), LaneSpec(ALL, 100))

    def make_topic(self) -> TopicModel:
        self.lockstep = ExpiringStage()
        return self.lockstep.define("px", ("k",), expiration_ns=SECOND)


class ExpiringStage(Lockstep):
    """The shell's part: what is announced as expired is removed, if it has not changed since."""

    def serve(self) -> None:
        super().serve()
        while self.expired:
            through = self.expired.pop(0).through
            for topic in self.topics.values():
                due = [m for m in topic.records[-1].values() if m.offset <= through]
                assert all(m.at + SECOND <= self.now for m in due), "a record expires too early"
                self.remove(topic, *(m.key for m in due), reason=RemovalReason.EXPIRED)
            super().serve()
        for topic in self.topics.values():
            for record in topic.records[-1].values():
                assert record.at + SECOND > self.now, "a record that should have expired"
