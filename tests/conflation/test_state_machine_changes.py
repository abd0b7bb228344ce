"""Subscriptions that change while messages come: another interval, another filter, a pause.

What is compared stands in tests/support/models/lockstep.py and consumer.py, what can happen in players.py.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.support.models.boards import Focus
from tests.support.models.lane_spec import Wish
from tests.support.models.machine import PICK, Removing
from tests.support.profiles import examples

ALL = Focus()
GROUP_X = Focus("/g = 'X'", lambda value: value["g"] == "X")
HIGH = Focus("/n > 0", lambda value: value["n"] > 0)
TOP = Focus(order_text="/n", rank=lambda value: value["n"], top=2)
SILENT = (
    Wish(ALL, 100),
    Wish(ALL, 1_000, "key"),
    Wish(ALL, 333, counted=True),
    Wish(ALL, 100, delta=True),
    Wish(HIGH, 100),
    Wish(HIGH, 1_000, "key"),
    Wish(HIGH, 100, delta=True),
    Wish(GROUP_X, 100, delta=True),
    Wish(GROUP_X, 1_000),
)
TOLD = (
    Wish(ALL, 100, oof=True),
    Wish(ALL, 1_000, "key", oof=True),
    Wish(HIGH, 333, oof=True),
    Wish(HIGH, 1_000, oof=True),
    Wish(HIGH, 100, delta=True, oof=True),
    Wish(GROUP_X, 100, oof=True),
    Wish(GROUP_X, 1_000, "key", oof=True),
    Wish(TOP, 100, oof=True),
    Wish(TOP, 333, "key", oof=True, delta=True),
)


class ChangeMachine(Removing):
    """Members that go from lane to lane and from board to board."""

    wishes = SILENT + TOLD

    @precondition(lambda self: self.stage.consumers)
    @rule(pick=PICK, to=PICK)
    def change(self, pick: int, to: int) -> None:
        """Rules change-1 and change-2; with removals or without, as it was."""
        members = list(self.stage.consumers.values())
        member = members[pick % len(members)]
        table = TOLD if member.wish.oof else SILENT
        self.stage.change(member, table[to % len(table)])

    @precondition(lambda self: self.stage.consumers)
    @rule(pick=PICK, others=st.booleans())
    def pause(self, pick: int, others: bool) -> None:
        """Rule change-3."""
        members = list(self.stage.consumers.values())
        self.stage.pause(members[pick % len(members)])


TestChangeMachine = ChangeMachine.TestCase
TestChangeMachine.settings = examples(80, nightly=5_000, steps=30)
