"""Windows and groups: boards whose rows are not simply messages.

What is compared stands in tests/support/models/lockstep.py and consumer.py, what can happen in players.py.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.models.boards import Focus, Value
from tests.support.models.lane_spec import Wish
from tests.support.models.machine import Removing
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


class WindowMachine(Removing):
    """Records come into view and are pushed out."""

    wishes = (
        Wish(UP, 100, oof=True),
        Wish(replace(DOWN, skip=1), 100, oof=True),
        Wish(replace(HIGH_UP, top=1), 1_000, oof=True),
        Wish(UP, 0, oof=True),
        Wish(replace(HIGH_DOWN, skip=1), 0, oof=True, dropped=("p",)),
        Wish(Focus(top=1), 100, oof=True),
        Wish(DOWN, 100, "key", oof=True, counted=True),
        Wish(DOWN, 333, oof=True, delta=True),
        Wish(UP, 0, oof=True, delta=True),
        Wish(Focus(top=2, skip=1), 100),
    )


class GroupMachine(Removing):
    """One row for each group of the records that match."""

    wishes = (
        Wish(GROUPS, 100, oof=True),
        Wish(GROUPS, 0, oof=True),
        Wish(HIGH_GROUPS, 1_000, oof=True),
        Wish(GROUPS, 333, "key", oof=True),
        Wish(HIGH_GROUPS, 100, delta=True, oof=True),
        Wish(HIGH_GROUPS, 0, delta=True, no_empties=True),
        Wish(GROUPS, 100),
        Wish(GROUPS, 100, counted=True),
    )


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = examples(80, nightly=4_000, steps=30)
TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = examples(80, nightly=4_000, steps=30)
