"""Subscriptions that change while messages come: another interval, another filter, a pause.

tests/support/models has what is compared, in lockstep.py and subscriber.py, and what can happen,
in machine.py.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.support.models.boards import Focus
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.machine import PICK, RemovalMachine
from tests.support.profiles import examples

ALL = Focus()
GROUP_X = Focus("/g = 'X'", lambda value: value["g"] == "X")
HIGH = Focus("/n > 0", lambda value: value["n"] > 0)
TOP = Focus(order_text="/n", rank=lambda value: value["n"], top=2)
SILENT = (
    LaneSpec(ALL, 100),
    LaneSpec(ALL, 1_000, "key"),
    LaneSpec(ALL, 333, counted=True),
    LaneSpec(ALL, 100, delta=True),
    LaneSpec(HIGH, 100),
    LaneSpec(HIGH, 1_000, "key"),
    LaneSpec(HIGH, 100, delta=True),
    LaneSpec(GROUP_X, 100, delta=True),
    LaneSpec(GROUP_X, 1_000),
)
TOLD = (
    LaneSpec(ALL, 100, oof=True),
    LaneSpec(ALL, 1_000, "key", oof=True),
    LaneSpec(HIGH, 333, oof=True),
    LaneSpec(HIGH, 1_000, oof=True),
    LaneSpec(HIGH, 100, delta=True, oof=True),
    LaneSpec(GROUP_X, 100, oof=True),
    LaneSpec(GROUP_X, 1_000, "key", oof=True),
    LaneSpec(TOP, 100, oof=True),
    LaneSpec(TOP, 333, "key", oof=True, delta=True),
)


class ChangeMachine(RemovalMachine):
    """Members that go from lane to lane and from board to board."""

    lane_specs = SILENT + TOLD

    @precondition(lambda self: self.lockstep.subscribers)
    @rule(pick=PICK, to=PICK)
    def change(self, pick: int, to: int) -> None:
        """Rules change-1 and change-2; with removals or without, as it was."""
        members = list(self.lockstep.subscribers.values())
        member = members[pick % len(members)]
        table = TOLD if member.lane_spec.oof else SILENT
        self.lockstep.change(member, table[to % len(table)])

    @precondition(lambda self: self.lockstep.subscribers)
    @rule(pick=PICK, others=st.booleans())
    def pause(self, pick: int, others: bool) -> None:
        """Rule change-3."""
        members = list(self.lockstep.subscribers.values())
        self.lockstep.pause(members[pick % len(members)])


TestChangeMachine = ChangeMachine.TestCase
TestChangeMachine.settings = examples(80, nightly=5_000, steps=30)
