"""Configurations of the machine of `language.py`: which subscriptions there are to choose from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.conflation.machines.language import PICK, LanguageMachine, RemovalMachine
from tests.support.models.boards import Focus, TopicModel, Value, compact
from tests.support.models.lane_spec import LaneSpec
from tidegate.keys.merging import Merger, Verdict
from tidegate.keys.reducers import Reduce

ALL = Focus()
BY_K = Focus(fields=("k",))
BY_G = Focus(fields=("g",))
GROUP_X = Focus("/g = 'X'", lambda value: value["g"] == "X")
HIGH = Focus("/n > 0", lambda value: value["n"] > 0)
HIGHER = Focus("/n > 1", lambda value: value["n"] > 1)
BOTH = Focus("/g IN ('X', 'Y') AND /n > 0", lambda value: value["g"] != "Z" and value["n"] > 0)
UP = Focus(order_text="/n", rank=lambda value: value["n"], top=2)
DOWN = Focus(order_text="/n DESC,/g", rank=lambda value: (-value["n"], value["g"]), top=2)
HIGH_UP = replace(UP, filter_text=HIGH.filter_text, matches=HIGH.matches)
HIGH_DOWN = replace(DOWN, filter_text=HIGH.filter_text, matches=HIGH.matches)
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
    """Counts, deltas, reducers, mergers, `match`, `never` and `flush_on`."""

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


class EmptiesMachine(RemovalMachine):
    """`no_empties`: messages of two keys with two values, so that most of them repeat the last."""

    lane_specs = (
        LaneSpec(ALL, 1_000, delta=True, no_empties=True, counted=True),
        LaneSpec(ALL, 100, delta=True, no_empties=True),
        LaneSpec(ALL, 333, "key", delta=True, no_empties=True, counted=True),
        LaneSpec(ALL, 1_000, delta=True, no_empties=True, dropped=("n",)),
        LaneSpec(HIGH, 333, delta=True, no_empties=True, counted=True),
        LaneSpec(ALL, 1_000, delta=True, no_empties=True, oof=True, counted=True),
        LaneSpec(HIGH, 333, "key", delta=True, no_empties=True, oof=True),
    )

    def payload(self, letter: int) -> bytes:
        value = {"k": "ab"[letter % 2], "n": letter // 2 % 2}
        return compact({**value, "pad": "a text that is long enough for a delta to be short"})


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


class FocusMachine(RemovalMachine):
    """Removals and filters: who is notified that a key has left, and when."""

    lane_specs = (
        LaneSpec(GROUP_X, 100, oof=True),
        LaneSpec(ALL, 100, oof=True),
        LaneSpec(HIGHER, 1_000, oof=True),
        LaneSpec(GROUP_X, 0, oof=True),
        LaneSpec(ALL, 0, oof=True),
        LaneSpec(GROUP_X, 100, "key", oof=True),
        LaneSpec(BOTH, 100, oof=True, counted=True),
        LaneSpec(HIGHER, 100),
        LaneSpec(GROUP_X, 1_000, delta=True, oof=True, dropped=("p",)),
        LaneSpec(BOTH, 0, delta=True, oof=True),
        LaneSpec(ALL, 100, delta=True, no_empties=True, oof=True),
        LaneSpec(ALL, 100, oof=True, dropped=("n", "p")),
        LaneSpec(BOTH, 0),
        LaneSpec(GROUP_X, 100, "key"),
        LaneSpec(HIGHER, 70, "key", leading=True, oof=True),
        LaneSpec(ALL, 1_000),
    )


def total(values: list[Value]) -> Value:
    """`/g, SUM(/n) AS /total, COUNT(/k) AS /count, MAX(/n) AS /top`."""
    numbers = [value["n"] for value in values]
    row = {"g": values[-1]["g"], "total": sum(numbers)}
    return {**row, "count": len(values), "top": max(numbers), "last": values[-1]["k"]}


PROJECTION = "[/g,SUM(/n) AS /total,COUNT(/k) AS /count,MAX(/n) AS /top,LAST(/k) AS /last]"
GROUPS = Focus(grouping="g", projection_text=PROJECTION, project=total)
HIGH_GROUPS = replace(GROUPS, filter_text=HIGH.filter_text, matches=HIGH.matches)


class WindowMachine(RemovalMachine):
    """Windows: records enter and are pushed out."""

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
    LaneSpec(UP, 100, oof=True),
    LaneSpec(UP, 333, "key", oof=True, delta=True),
)


class ChangeMachine(RemovalMachine):
    """Members change their interval, their filter, or pause."""

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
