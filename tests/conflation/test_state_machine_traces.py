"""Traced subscriptions: the calls that were recorded give the same rows again (rule trace-1).

Every machine of the language, with a trace that begins at any moment on any of its members.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis.stateful import precondition, rule

from tests.conflation.test_state_machine_changes import ChangeMachine
from tests.conflation.test_state_machine_replay import ReplayMachine
from tests.conflation.test_state_machine_stateful import PlainStatefulMachine, StatefulMachine
from tests.conflation.test_state_machine_windows import GroupMachine, WindowMachine
from tests.support.models.machine import PICK, LanguageMachine
from tests.support.profiles import examples
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.tracing.decisions import Decision, DecisionKind
from tidegate.conflation.tracing.recorder import Call, Taken, TraceRecorder, begin_recording
from tidegate.conflation.tracing.replay import Trace, replay, same

pytestmark = pytest.mark.rule("trace-1")


class Traced(LanguageMachine):
    """A player whose members may be traced, each once at most."""

    def __init__(self) -> None:
        super().__init__()
        self.recorders: dict[str, TraceRecorder] = {}
        self.calls: dict[str, list[Call]] = {}

    @precondition(lambda self: self.lockstep.subscribers)
    @rule(pick=PICK)
    def trace(self, pick: int) -> None:
        """From now on, whatever is held, queued or owed."""
        members = list(self.lockstep.subscribers.values())
        member = members[pick % len(members)]
        engine = self.lockstep.engine
        subscriber = engine.session(member.session).subscribers.get((member.name, self.topic.name))
        if subscriber is None or member.session in self.recorders or len(self.recorders) >= 10:
            return
        recorder = begin_recording(engine.watchers, subscriber, self.lockstep.now, lambda: None)
        self.recorders[member.session] = recorder

    @rule()
    def read(self) -> None:
        """What was recorded is read as it comes."""
        for session, recorder in self.recorders.items():
            self.calls.setdefault(session, []).extend(recorder.drain())

    def teardown(self) -> None:
        super().teardown()
        if sys.exception() is None:
            self.read()
            for calls in self.calls.values():
                judge(calls)


def judge(calls: Sequence[Call]) -> None:
    """The same rows, and decisions that account for them."""
    given = [output for call in calls if isinstance(call, Taken) for output in call.outputs]
    again = replay(calls)
    assert same(again, given)
    assert same(replay(calls), given), "a replay leaves the records as they were"
    trace = Trace()  # uses the subscribers up: it comes last
    decisions = [decision for call in calls for decision in trace.decisions(call)]
    assert trace.ended in (None, "GONE"), trace.ended
    check(decisions, given)


def check(decisions: Sequence[Decision], given: Sequence[Output]) -> None:
    """Every row is told as delivered; what is replaced or suppressed was there before."""
    rows = [row for out in given if isinstance(out, Rows) for row in out.batch.frames]
    told = [decision for decision in decisions if decision.what is DecisionKind.DELIVERED]
    assert [(d.board_key, d.offset) for d in told] == [(row.key, row.offset) for row in rows]


class TracedSlotMachine(Traced, StatefulMachine):
    pass


class TracedPlainStatefulMachine(Traced, PlainStatefulMachine):
    pass


class TracedChangeMachine(Traced, ChangeMachine):
    pass


class TracedWindowMachine(Traced, WindowMachine):
    pass


class TracedGroupMachine(Traced, GroupMachine):
    pass


class TracedReplayMachine(Traced, ReplayMachine):
    pass


TestTracedSlots = TracedSlotMachine.TestCase
TestTracedSlots.settings = examples(60, nightly=3_000, steps=30)
TestTracedPlainSlots = TracedPlainStatefulMachine.TestCase
TestTracedPlainSlots.settings = examples(20, nightly=1_000, steps=30)
TestTracedChanges = TracedChangeMachine.TestCase
TestTracedChanges.settings = examples(60, nightly=3_000, steps=30)
TestTracedGroups = TracedGroupMachine.TestCase
TestTracedGroups.settings = examples(20, nightly=1_000, steps=30)
TestTracedReplays = TracedReplayMachine.TestCase
TestTracedReplays.settings = examples(20, nightly=1_000, steps=30)
TestTracedWindows = TracedWindowMachine.TestCase
TestTracedWindows.settings = examples(30, nightly=1_000, steps=30)
