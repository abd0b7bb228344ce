"""Windows and groups: boards whose rows are not simply messages.

tests/support/models has what is compared, in lockstep.py and subscriber.py, and what can happen,
in machine.py.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.models.boards import Focus, Value
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.machine import RemovalMachine
from tests.support.profiles import examples


def total(values: list[Value]) -> Value:
    """`/g, SUM(/n) AS /total, COUNT(/k) AS /count, MAX(/n) AS /top`."""
    numbers = [value["n"] for value in values]
    row = {"g": values[-1]["g"], "total": sum(numbers)}
    return {**row, "count": len(values), "top": max(numbers), "last": values[-1]["k"]}


PROJECTION = "[/g,SUM(/n) AS /total,COUNT(/k) AS /count,MAX(/n) AS /top,LAST(/k) AS /last]"
HIGH = Focus("/n > 0", lambda value: value["n"] > 0)
UP = Focus(order_text="/n", rank=lambda value: value["n"], top=2)
DOWN = Focus(order_text="/n DESC,/g", rank=lambda value: (-value["n"], value["g"]), top=2)
HIGH_UP = replace(UP, filter_text=HIGH.filter_text, matches=HIGH.matches)
HIGH_DOWN = replace(DOWN, filter_text=HIGH.filter_text, matches=HIGH.matches)
GROUPS = Focus(grouping="g", projection_text=PROJECTION, project=total)
HIGH_GROUPS = replace(GROUPS, filter_text=HIGH.filter_text, matches=HIGH.matches)


class WindowMachine(RemovalMachine):
    """Records come into view and are pushed out."""

    lane_specs = (
        LaneSpec(UP, 100, oof=True),
        LaneSpec(replace(DOWN, skip=1), 100, oof=True),
        LaneSpec(replace(HIGH_UP, top=1), 1_000, oof=True),
        LaneSpec(UP, 0, oof=True),
        LaneSpec(replace(HIGH_DOWN, skip=1), 0, oof=True, dropped=("p",)),
        LaneSpec(Focus(top=1), 100, oof=True),
        LaneSpec(DOWN, 100, "key", oof=True, counted=True),
        LaneSpec(DOWN, 333, oof=True, delta=True),
        LaneSpec(UP, 0, oof=True, delta=True),
        LaneSpec(Focus(top=2, skip=1), 100),
    )


class GroupMachine(RemovalMachine):
    """One row for each group of the records that match."""

    lane_specs = (
        LaneSpec(GROUPS, 100, oof=True),
        LaneSpec(GROUPS, 0, oof=True),
        LaneSpec(HIGH_GROUPS, 1_000, oof=True),
        LaneSpec(GROUPS, 333, "key", oof=True),
        LaneSpec(HIGH_GROUPS, 100, delta=True, oof=True),
        LaneSpec(HIGH_GROUPS, 0, delta=True, no_empties=True),
        LaneSpec(GROUPS, 100),
        LaneSpec(GROUPS, 100, counted=True),
    )


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = examples(80, nightly=4_000, steps=30)
TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = examples(80, nightly=4_000, steps=30)
