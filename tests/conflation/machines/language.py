"""The state machine of the options language: one topic, up to five sessions, any options.

It compares the engine with the naive model of tests/support/models/lockstep.py after every call.
A configuration (`configurations.py`, `bookmarks.py`) is a subclass: its subscriptions, and rules
that only it needs. Some members are traced; in the end a replay of each trace has to give the same
rows again (rule trace-1).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.models.boards import MILLISECOND, TopicModel, compact, key_text
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.lockstep import PLENTY, Lockstep
from tests.support.models.subscriber import SubscriberModel
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.tracing.decisions import Decision, DecisionKind
from tidegate.conflation.tracing.recorder import Call, Taken, TraceRecorder, begin_recording
from tidegate.conflation.tracing.replay import Trace, replay, same
from tidegate.keys.merging import Merger

STEPS_NS = tuple(round(ms * MILLISECOND) for ms in (0, 1, 3.5, 49, 100, 333, 1_000))
PICK = st.integers(0, 63)
STEP = st.sampled_from(STEPS_NS)
LETTERS = st.lists(st.integers(0, 71), min_size=1, max_size=4)
SIZES = st.sampled_from((1, 60, 150, PLENTY))
MEMBERS_MAX = 5
TRACES_MAX = 10


class LanguageMachine(RuleBasedStateMachine):
    """One keyed topic, up to five sessions; `lane_specs` is what may be subscribed to.

    `exempts`: some messages are published as never to be conflated.
    """

    lane_specs: ClassVar[tuple[LaneSpec, ...]] = ()
    exempts: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.lockstep = Lockstep()
        self.topic = self.make_topic()
        self.recorders: dict[str, TraceRecorder] = {}
        self.traces: dict[str, list[Call]] = {}

    def make_topic(self) -> TopicModel:
        """Keyed by /k."""
        return self.lockstep.define("px", ("k",))

    def payload(self, letter: int) -> bytes:
        """A message of one of three keys; some say just what the last one said."""
        return plain_payload(letter)

    def slow(self) -> list[SubscriberModel]:
        return [c for c in self.lockstep.subscribers.values() if not c.fast]

    @initialize(picks=st.lists(PICK, min_size=2, max_size=4))
    def begin(self, picks: list[int]) -> None:
        for number, pick in enumerate(picks):
            self.join(pick, number, 0)

    @rule(letters=LETTERS, exempt=st.integers(0, 7))
    def publish(self, letters: list[int], exempt: int) -> None:
        self.lockstep.publish(
            self.topic, *map(self.payload, letters), exempt=exempt == 7 and self.exempts
        )

    @rule(letters=LETTERS, step_ns=STEP)
    def traffic(self, letters: list[int], step_ns: int) -> None:
        """Messages with time in between, every deadline served as it comes."""
        for letter in letters:
            self.lockstep.publish(self.topic, self.payload(letter))
            self.lockstep.advance(step_ns)

    @rule(step_ns=STEP)
    def advance(self, step_ns: int) -> None:
        self.lockstep.advance(step_ns)

    @rule(step_ns=STEP)
    def advance_late(self, step_ns: int) -> None:
        """All that fell due meanwhile at once."""
        self.lockstep.now += step_ns
        self.lockstep.serve()

    @precondition(lambda self: len(self.lockstep.subscribers) < MEMBERS_MAX)
    @rule(pick=PICK, kind=st.integers(0, 3), small=st.integers(0, 2))
    def join(self, pick: int, kind: int, small: int) -> None:
        """Fast or slow, with a snapshot or without."""
        lane_spec = self.lane_specs[pick % len(self.lane_specs)]
        snapshot = kind < 2 and bool(self.topic.key)
        size = 2 if small == 2 else 100
        self.lockstep.join(
            self.topic, lane_spec, fast=kind % 2 == 0, snapshot=snapshot, batch_size=size
        )

    @precondition(lambda self: 0 < len(self.lockstep.subscribers) < MEMBERS_MAX)
    @rule(pick=PICK, kind=st.integers(0, 3))
    def join_another(self, pick: int, kind: int) -> None:
        """Somebody shares a lane that may hold something."""
        others = list(self.lockstep.subscribers.values())
        lane_spec = others[pick % len(others)].lane_spec
        snapshot = kind < 2 and bool(self.topic.key)
        self.lockstep.join(self.topic, lane_spec, fast=kind % 2 == 0, snapshot=snapshot)

    @precondition(lambda self: len(self.lockstep.subscribers) == MEMBERS_MAX)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        others = list(self.lockstep.subscribers.values())
        self.lockstep.leave(others[pick % len(others)])

    @precondition(lambda self: self.slow())
    @rule(pick=PICK, bytes_max=SIZES, whole=st.booleans())
    def take(self, pick: int, bytes_max: int, whole: bool) -> None:
        """A slow member takes a piece, or all that there is in pieces."""
        taker = self.slow()[pick % len(self.slow())]
        if whole:
            self.lockstep.take(taker, bytes_max)
        else:
            self.lockstep.take_once(taker, bytes_max)
        self.lockstep.look()

    @precondition(lambda self: self.lockstep.subscribers and len(self.recorders) < TRACES_MAX)
    @rule(pick=PICK)
    def trace(self, pick: int) -> None:
        """Begin a trace of a member, whatever it holds, has queued or is owed."""
        members = list(self.lockstep.subscribers.values())
        member = members[pick % len(members)]
        engine = self.lockstep.engine
        subscriber = engine.session(member.session).subscribers.get((member.name, self.topic.name))
        if subscriber is None or member.session in self.recorders:
            return
        if isinstance(member.lane_spec.merge, Merger) and not member.fast:
            return  # ours is not associative, and flushes are combined by where others are
        recorder = begin_recording(engine.watchers, subscriber, self.lockstep.now, lambda: None)
        self.recorders[member.session] = recorder

    @precondition(lambda self: self.recorders)
    @rule()
    def read_traces(self) -> None:
        for session, recorder in self.recorders.items():
            self.traces.setdefault(session, []).extend(recorder.take_calls())

    def teardown(self) -> None:
        if sys.exception() is None:
            self.lockstep.settle()
            self.read_traces()
            for calls in self.traces.values():
                check_trace(calls)


class RemovalMachine(LanguageMachine):
    """Records are deleted and expire as well."""

    @rule(letters=LETTERS, expired=st.booleans())
    def remove(self, letters: list[int], expired: bool) -> None:
        keys = dict.fromkeys(key_text({"k": "abc"[letter % 3]}, ("k",)) for letter in letters)
        reason = RemovalReason.EXPIRED if expired else RemovalReason.DELETED
        self.lockstep.remove(self.topic, *keys, reason=reason)


def check_trace(calls: Sequence[Call]) -> None:
    """A replay gives the same rows, and the decisions account for them."""
    given = [output for call in calls if isinstance(call, Taken) for output in call.outputs]
    assert same(replay(calls), given)
    assert same(replay(calls), given), "a replay changes the recorded calls"
    trace = Trace()  # uses up the subscribers in the records, so it comes last
    decisions = [decision for call in calls for decision in trace.decisions(call)]
    assert trace.ended in (None, "GONE"), trace.ended
    check_decisions(decisions, given)


def check_decisions(decisions: Sequence[Decision], given: Sequence[Output]) -> None:
    """Every row is reported as delivered, in its order."""
    rows = [row for out in given if isinstance(out, Rows) for row in out.batch.frames]
    told = [decision for decision in decisions if decision.what is DecisionKind.DELIVERED]
    assert [(d.board_key, d.offset) for d in told] == [(row.key, row.offset) for row in rows]


def plain_payload(letter: int) -> bytes:
    """A message of one of three keys; some say just what the last one said, some are longer."""
    value: dict[str, object] = {"k": "abc"[letter % 3], "g": "XYZ"[letter // 3 % 3]}
    value["n"] = letter // 9 % 4
    if letter >= 36:
        value["p"] = "x" * 40
    return compact(value)
