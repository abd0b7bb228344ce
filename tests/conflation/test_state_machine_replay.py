"""Bookmarks: replays at a speed, resumes by their three ways, and records that expire.

What is compared stands in tests/support/models/lockstep.py and consumer.py, what can happen in players.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.support.models.boards import MILLISECOND, Chronicle, Event, Focus, Value
from tests.support.models.lane_spec import Wish
from tests.support.models.lockstep import (
    SECOND,
    Stage,
    journal_script,
    script_line,
    snapshot_script,
)
from tests.support.models.machine import PICK, Removing
from tests.support.models.replica import RatedReplay, ScriptLine
from tests.support.profiles import examples
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


class ReplayMachine(Removing):
    """Bookmark subscriptions that read the journal at a speed, then go on live (rule resume-8)."""

    wishes = (Wish(ALL, 0), Wish(HIGH, 0), Wish(ALL, 100), Wish(HIGH, 1_000))

    @rule()
    def sleep(self) -> None:
        """A driver that is very late: no more than a second is made up for."""
        self.stage.now += 3 * SECOND
        self.stage.serve()

    @precondition(lambda self: len(self.stage.consumers) < 6)
    @rule(pick=PICK, start=st.integers(-2, 40), rate=PICK)
    def replay(self, pick: int, start: int, rate: int) -> None:
        wish = self.wishes[pick % len(self.wishes)]
        chosen, gap_ns = RATES[rate % len(RATES)]
        member = self.stage.enter(self.topic, wish, fast=True, snapshot=False)
        after = max(0, min(start, self.topic.head))
        member.replay = RatedReplay(gap_ns, self.stage.now)
        member.cut = after
        member.script.append(("resumed", "replay", self.topic.head - after))
        journal = self.topic.events(wish.focus, after)
        member.script.extend(journal_script(wish, journal))
        member.cut = self.topic.head
        place = Bookmark("e", after) if start >= 0 else None
        replay = Replay(place, rate=chosen)
        self.stage.subscribe(member, replay=replay)


@dataclass(frozen=True)
class Mark:
    """An id, and what a client held with it."""

    wish: Wish
    offset: int
    holds: dict[str, Value]


class ResumeMachine(Removing):
    """Clients that come back with an id that they saw (rules resume-2 to resume-5)."""

    wishes = (
        *(Wish(ALL, 100), Wish(ALL, 100, oof=True), Wish(HIGH, 100), Wish(ALL, 0), Wish(HIGH, 0)),
        *(Wish(HIGH, 100, oof=True), Wish(ALL, 1_000, "key"), Wish(ALL, 333, oof=True, delta=True)),
        Wish(Focus(order_text="/n", rank=lambda value: value["n"], top=2), 100, oof=True),
    )

    @precondition(lambda self: 0 < len(self.stage.consumers) < 6)
    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        members = list(self.stage.consumers.values())
        other = members[pick % len(members)]
        if other.script or not other.snapshot:
            return
        mark = Mark(other.wish, other.mark, dict(other.holds))
        self.stage.leave(other)
        self.stage.advance(pick % 3 * 50 * MILLISECOND)
        member = self.stage.enter(self.topic, mark.wish, fast=True, snapshot=True)
        member.holds = mark.holds
        member.script.extend(resume_script(self.topic, mark))
        member.fresh.update(mark.holds)
        self.stage.subscribe(member, resume=Bookmark("e", mark.offset))
        assert not member.script
        if mark.wish.oof:
            live = self.topic.live(mark.wish.focus, self.topic.head)
            shown = {own: mark.wish.shown(value) for own, (_, value) in live.items()}
            assert member.holds == shown, "the very board after a resume"


def resume_script(topic: Chronicle, mark: Mark) -> list[ScriptLine]:
    """By which way a client goes on, and with which rows."""
    wish, gap = mark.wish, topic.head - mark.offset
    if wish.focus.derived or (wish.oof and wish.focus.filter_text):
        return [("resumed", "snapshot", gap), *snapshot_script(topic, wish)]
    events = topic.events(ALL, mark.offset)
    if not wish.interval_ms:
        told = [e for e in events if not e.gone and wish.focus.matches(e.value)]
        return [("resumed", "replay", gap), *(script_line(wish, event) for event in told)]
    rows: list[Event] = []
    for own in {event.key for event in events}:
        said = [event for event in events if event.key == own]
        puts = [event for event in said if not event.gone]
        alone = [put for put in puts if put.exempt and wish.focus.matches(put.value)]
        rows += [put for put in alone if put is not puts[-1] or (said[-1].gone and wish.oof)]
        if said[-1].gone and wish.oof:
            rows.append(said[-1])
        elif puts and wish.focus.matches(puts[-1].value):
            rows.append(puts[-1])
    rows.sort(key=lambda event: event.offset)
    return [("resumed", "changes", gap), *(script_line(wish, event) for event in rows)]


class ExpiryMachine(Removing):
    """Records that are not published again for a second are removed (rule removal-6)."""

    wishes = (Wish(ALL, 100, oof=True), Wish(HIGH, 0, oof=True), Wish(ALL, 100))

    def make_topic(self) -> Chronicle:
        self.stage = ExpiringStage()
        return self.stage.define("px", ("k",), expiration_ns=SECOND)


class ExpiringStage(Stage):
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


TestReplayMachine = ReplayMachine.TestCase
TestReplayMachine.settings = examples(50, nightly=3_000, steps=25)
TestResumeMachine = ResumeMachine.TestCase
TestResumeMachine.settings = examples(50, nightly=3_000, steps=25)
TestExpiryMachine = ExpiryMachine.TestCase
TestExpiryMachine.settings = examples(30, nightly=2_000, steps=25)
