"""Removals, filters and every message: who is told that a key has left, and when.

What is compared stands in tests/support/models/lockstep.py and consumer.py, what can happen in players.py.
"""

from __future__ import annotations

from tests.support.models.boards import Focus
from tests.support.models.lane_spec import Wish
from tests.support.models.machine import Removing
from tests.support.profiles import examples

ALL = Focus()
GROUP_X = Focus("/g = 'X'", lambda value: value["g"] == "X")
HIGH = Focus("/n > 1", lambda value: value["n"] > 1)
BOTH = Focus("/g IN ('X', 'Y') AND /n > 0", lambda value: value["g"] != "Z" and value["n"] > 0)


class FocusMachine(Removing):
    """One keyed topic whose records change, leave, and come back."""

    wishes = (
        Wish(GROUP_X, 100, oof=True),
        Wish(ALL, 100, oof=True),
        Wish(HIGH, 1_000, oof=True),
        Wish(GROUP_X, 0, oof=True),
        Wish(ALL, 0, oof=True),
        Wish(GROUP_X, 100, "key", oof=True),
        Wish(BOTH, 100, oof=True, counted=True),
        Wish(HIGH, 100),
        Wish(GROUP_X, 1_000, delta=True, oof=True, dropped=("p",)),
        Wish(BOTH, 0, delta=True, oof=True),
        Wish(ALL, 100, delta=True, no_empties=True, oof=True),
        Wish(ALL, 100, oof=True, dropped=("n", "p")),
        Wish(BOTH, 0),
        Wish(GROUP_X, 100, "key"),
        Wish(HIGH, 70, "key", leading=True, oof=True),
        Wish(ALL, 1_000),
    )


TestFocusMachine = FocusMachine.TestCase
TestFocusMachine.settings = examples(100, nightly=6_000, steps=30)
