"""Removals, filters and every message: who is told that a key has left, and when.

tests/support/models has what is compared, in lockstep.py and subscriber.py, and what can happen,
in machine.py.
"""

from __future__ import annotations

from tests.support.models.boards import Focus
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.machine import RemovalMachine
from tests.support.profiles import examples

ALL = Focus()
GROUP_X = Focus("/g = 'X'", lambda value: value["g"] == "X")
HIGH = Focus("/n > 1", lambda value: value["n"] > 1)
BOTH = Focus("/g IN ('X', 'Y') AND /n > 0", lambda value: value["g"] != "Z" and value["n"] > 0)


class FocusMachine(RemovalMachine):
    """One keyed topic whose records change, leave, and come back."""

    lane_specs = (
        LaneSpec(GROUP_X, 100, oof=True),
        LaneSpec(ALL, 100, oof=True),
        LaneSpec(HIGH, 1_000, oof=True),
        LaneSpec(GROUP_X, 0, oof=True),
        LaneSpec(ALL, 0, oof=True),
        LaneSpec(GROUP_X, 100, "key", oof=True),
        LaneSpec(BOTH, 100, oof=True, counted=True),
        LaneSpec(HIGH, 100),
        LaneSpec(GROUP_X, 1_000, delta=True, oof=True, dropped=("p",)),
        LaneSpec(BOTH, 0, delta=True, oof=True),
        LaneSpec(ALL, 100, delta=True, no_empties=True, oof=True),
        LaneSpec(ALL, 100, oof=True, dropped=("n", "p")),
        LaneSpec(BOTH, 0),
        LaneSpec(GROUP_X, 100, "key"),
        LaneSpec(HIGH, 70, "key", leading=True, oof=True),
        LaneSpec(ALL, 1_000),
    )


TestFocusMachine = FocusMachine.TestCase
TestFocusMachine.settings = examples(100, nightly=6_000, steps=30)
