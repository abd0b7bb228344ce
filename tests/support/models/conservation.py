"""Conservation: every message that a subscription matches is accounted for exactly once.

Each message carries its own number in a list, and every rule by which rows are combined here
joins these lists. So a row says by itself which messages it stands for, whatever happened to the
subscription in between; nothing of the engine is asked what it did.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.sessions.accounting import SubscriptionStats
from tidegate.keys.merging import Merger, Verdict

REDUCE = "reduce=[/qty:sum,/s:append@all]"
OTHER_REDUCE = "reduce=[/s:append@all,/qty:sum,/n:max@top]"


def merged(current: Any, new: Any) -> Any:
    """Both lists; some messages are not to be conflated with an older one."""
    if new["n"] == 3:
        return Verdict.NO_CONFLATION
    return {**new, "qty": current["qty"] + new["qty"], "all": current["all"] + new["all"]}


MERGER = Merger("tests:conserved", merged)


@dataclass(frozen=True)
class Asked:
    """Options of a subscription, and which messages match."""

    options: str
    filter_text: str = ""
    matches: Callable[[dict[str, Any]], bool] = field(
        default=lambda _: True, compare=False, repr=False
    )


@dataclass(frozen=True)
class Message:
    """One that was matched."""

    offset: int
    key: str
    group: int


@dataclass(eq=False)
class Account:
    """One subscription: what it matched, and what it was told of that."""

    session: str
    name: str
    topic: str
    command: str
    asked: Asked
    fast: bool
    merges_values: bool = False
    is_apart: bool = False
    by_count: bool = False
    due: dict[int, Message] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    in_removals: int = 0

    def changes(self, asked: Asked) -> None:
        """What came and went unseen is only counted by rows that combine otherwise."""
        if "oof" in self.asked.options and (REDUCE in asked.options) != (
            REDUCE in self.asked.options
        ):
            self.merges_values = True
        self.asked = asked

    def matched(self, serial: int, offset: int, value: dict[str, Any]) -> None:
        """A message was published that it asks for."""
        if self.asked.matches(value):
            self.due[serial] = Message(offset, value["k"], value["g"])

    def undelivered(self, key: str | None = None) -> list[int]:
        """Messages that no row stands for, oldest first."""
        return [
            serial
            for serial, message in self.due.items()
            if serial not in self.told and key in (None, message.key)
        ]

    def receive(self, output: Output) -> None:
        """Rows one by one; the rest says nothing about messages."""
        if isinstance(output, Rows) and output.op == "publish":
            for frame in output.batch.frames:
                if isinstance(frame, Tombstone):
                    self.receive_removal(frame)
                else:
                    self.receive_value(frame)

    def receive_value(self, frame: Frame) -> None:
        """What it says it stands for, and that none of it was told before."""
        value, count = json.loads(frame.payload), receipt_of(frame)
        if not count.messages:
            return  # a record that another filter brought in
        if self.by_count:
            self.receive_count(value["k"], count, frame.offset)
            return
        stood = value["all"]
        is_delta = isinstance(frame, Row) and frame.patch is not None
        assert not is_delta or "conflation=none" in self.asked.options, "combined, in full values"
        assert value["qty"] == len(stood), "the reducers agree"
        assert stood == sorted(set(stood)), "each once, in order"
        assert not self.told & set(stood), "no message twice"
        assert set(stood) <= set(self.due), "only what was matched"
        assert {self.due[serial].key for serial in stood} == {value["k"]}
        groups = {self.due[serial].group for serial in stood}
        assert not self.is_apart or len(groups) == 1, "these may not conflate"
        others = [
            serial
            for serial in self.undelivered(value["k"])
            if count.first <= self.due[serial].offset < frame.offset and serial not in stood
        ]
        extra = count.messages - len(stood)
        assert extra >= 0, f"a receipt of {count.messages} for {stood}"
        assert not extra or self.merges_values, f"a receipt of {count.messages} for {stood}"
        taken = others[:extra]
        assert len(taken) == extra, "what is only counted was published before"
        self.told |= {*stood, *taken}
        first = min(stood + taken)
        assert count.first == self.due[first].offset, "the first message"

    def receive_count(self, key: str, count: Receipt, through: int) -> None:
        """The newest value of a key says nothing of the others but how many, and the first."""
        undelivered = [s for s in self.undelivered(key) if self.due[s].offset <= through]
        assert count.first in {self.due[serial].offset for serial in undelivered}, (
            "the first message"
        )
        since = [serial for serial in undelivered if self.due[serial].offset >= count.first]
        assert len(since) >= count.messages, "a row counts what was not told"
        self.told |= set(since[: count.messages])

    def receive_removal(self, frame: Tombstone) -> None:
        """It takes away what was not told of its key."""
        count = receipt_of(frame)
        if not count.messages:
            return
        key = json.loads(frame.key)[0]
        taken = [
            serial
            for serial in self.undelivered(key)
            if count.first <= self.due[serial].offset < frame.offset
        ]
        assert len(taken) >= count.messages, "a removal counts what was not told"
        self.told |= set(taken[: count.messages])
        self.in_removals += count.messages

    def check(self, row: SubscriptionStats) -> None:
        """At every moment."""
        assert row.matched == len(self.due)
        assert row.conflated >= 0

    def check_settled(self, row: SubscriptionStats) -> None:
        """Nothing waits any more: all was told, exactly once."""
        assert row.waiting == 0
        assert len(self.undelivered()) == row.unreported, (
            f"{self.undelivered()}, {row.unreported} are accounted for"
        )
