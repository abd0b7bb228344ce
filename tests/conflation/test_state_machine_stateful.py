"""Lanes that look at every message: counts, deltas, reducers, mergers, match, never, flush_on.

tests/support/models has what is compared, in lockstep.py and subscriber.py, and what can happen,
in machine.py.
"""

from __future__ import annotations

from typing import Any

from tests.support.models.boards import Focus, TopicModel, Value, compact
from tests.support.models.lane_spec import LaneSpec
from tests.support.models.machine import LanguageMachine, RemovalMachine
from tests.support.profiles import examples
from tidegate.keys.merging import Merger, Verdict
from tidegate.keys.reducers import Reduce

ALL = Focus()
BY_K = Focus(fields=("k",))
BY_G = Focus(fields=("g",))
HIGH = Focus("/n > 0", lambda value: value["n"] > 0)
TEXTS = ("/n = 3", lambda value: value["n"] == 3)


def merged(current: Any, new: Any) -> Any:
    """All four verdicts, by what the new message says."""
    match new["n"]:
        case 0:
            return {**current, **new, "sum": current.get("sum", 0) + 1}
        case 1:
            return Verdict.KEEP_CURRENT
        case 2:
            return Verdict.KEEP_NEW
    return Verdict.NO_CONFLATION


def merge_all(values: list[Value]) -> Value:
    """What a merger makes of messages in publication order."""
    result = values[0]
    for value in values[1:]:
        answer = merged(result, value)
        assert answer is not Verdict.NO_CONFLATION, "conflated although the merger says no"
        if answer is Verdict.KEEP_NEW:
            result = value
        elif answer is not Verdict.KEEP_CURRENT:
            result = answer
    return result


def is_kept_out(value: Value) -> bool:
    """Whether the merger keeps what was there instead."""
    return bool(value["n"] == 1)


def reduce_all(values: list[Value]) -> Value:
    """`/n:sum`, `/n:max@top`, `/g:first`, `/p:count@ps`, the rest the last message's."""
    numbers = [value["n"] for value in values]
    result = {**values[-1], "n": sum(numbers), "top": max(numbers), "g": values[0]["g"]}
    return {**result, "gs": [value["g"] for value in values]}


REDUCE = Reduce.parse("[/n:sum,/n:max@top,/g:first,/g:append@gs]")
MERGER = Merger("tests:merged", merged)


class StatefulMachine(RemovalMachine):
    """A keyed topic, and every option for which a lane must look at every message."""

    lane_specs = (
        LaneSpec(ALL, 100, counted=True),
        LaneSpec(ALL, 100, "key", counted=True),
        LaneSpec(ALL, 100, delta=True),
        LaneSpec(ALL, 1_000, delta=True, no_empties=True, counted=True),
        LaneSpec(ALL, 100, "key", delta=True, dropped=("g",)),
        LaneSpec(ALL, 100, "key", leading=True, counted=True),
        LaneSpec(HIGH, 333, "key", leading=True, delta=True),
        LaneSpec(ALL, 100, merge=REDUCE, combine=reduce_all),
        LaneSpec(ALL, 1_000, "key", merge=REDUCE, combine=reduce_all, counted=True),
        LaneSpec(ALL, 100, merge=MERGER, combine=merge_all, stays=is_kept_out),
        LaneSpec(ALL, 1_000, "key", merge=MERGER, combine=merge_all, stays=is_kept_out),
        LaneSpec(ALL, 100, match_fields=("g",)),
        LaneSpec(ALL, 1_000, "key", match_fields=("g",), counted=True),
        LaneSpec(ALL, 1_000, match_fields=("g",), merge=REDUCE, combine=reduce_all, replaces=True),
        LaneSpec(ALL, 100, replaces=True),
        LaneSpec(HIGH, 1_000, "key", replaces=True),
        LaneSpec(ALL, 100, never_text=TEXTS[0], never=TEXTS[1]),
        LaneSpec(ALL, 1_000, "key", never_text=TEXTS[0], never=TEXTS[1], counted=True),
        LaneSpec(ALL, 1_000, flush_text=TEXTS[0], flushes=TEXTS[1]),
        LaneSpec(ALL, 1_000, "key", delta=True, flush_text=TEXTS[0], flushes=TEXTS[1]),
        LaneSpec(ALL, 0, delta=True),
        LaneSpec(ALL, 0, delta=True, no_empties=True, dropped=("p",)),
        LaneSpec(BY_G, 100, counted=True),
        LaneSpec(ALL, 100),
    )

    def payload(self, letter: int) -> bytes:
        """Three keys; fields that come and go, are objects, or null."""
        value: dict[str, object] = {"k": "abc"[letter % 3], "g": "XYZ"[letter // 3 % 3]}
        value |= {"n": letter // 9 % 4, "pad": "a text that is long enough for a delta to be short"}
        extra: tuple[object, ...] = ("x" * 40, {"q": 1, "r": letter % 2}, None, [letter % 4])
        if letter % 5 == 0:
            value["p"] = extra[letter // 5 % 4]
        return compact(value)


class PlainStatefulMachine(LanguageMachine):
    """A topic without key: rows are named by the conflation key."""

    lane_specs = (
        LaneSpec(BY_K, 100, counted=True),
        LaneSpec(BY_K, 1_000, "key", counted=True),
        LaneSpec(BY_K, 100, delta=True),
        LaneSpec(Focus(fields=("g", "k")), 100, "key"),
        LaneSpec(BY_K, 1_000, merge=REDUCE, combine=reduce_all),
        LaneSpec(BY_K, 100, match_fields=("g",), replaces=True),
        LaneSpec(BY_K, 100),
        LaneSpec(Focus("/n > 0", HIGH.matches, ("k",)), 100),
        LaneSpec(BY_K, 333, never_text=TEXTS[0], never=TEXTS[1], delta=True),
        LaneSpec(Focus(fields=()), 0),
    )

    def make_topic(self) -> TopicModel:
        return self.lockstep.define("log", ())


TestStatefulMachine = StatefulMachine.TestCase
TestStatefulMachine.settings = examples(100, nightly=6_000, steps=30)
TestPlainStatefulMachine = PlainStatefulMachine.TestCase
TestPlainStatefulMachine.settings = examples(30, nightly=2_000, steps=30)
