"""The state machine of reducers and mergers: every message is reported exactly once.

Readers are slow; interval, pace, filter and rules change at any moment, as PATCH and `auto` change
them. tests/support/models/conservation.py has the checks.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.manual_driver import PLENTY, ManualDriver
from tests.support.models.conservation import MERGER, OTHER_REDUCE, REDUCE, Account, Asked
from tests.support.models.expected import expected
from tidegate.keys.spec import KeySpec

PICK = st.integers(0, 63)
LETTERS = st.lists(st.integers(0, 23), min_size=1, max_size=5)
HIGH = "/n > 0"
STEPS = ("0ms", "10ms", "50ms", "100ms", "350ms")


def high(value: dict[str, object]) -> bool:
    """What the filter means."""
    return value["n"] != 0


def asked(*options: str) -> tuple[Asked, ...]:
    """Each for all messages, and for some."""
    return tuple(wanted for text in options for wanted in (Asked(text), Asked(text, HIGH, high)))


class ConservedMachine(RuleBasedStateMachine):
    """Topics without rules, with a merger, with `match`, and one that always conflates."""

    topics: ClassVar[tuple[str, ...]] = ("plain", "merged", "always", "matched")
    lane_specs: ClassVar[dict[str, tuple[Asked, ...]]] = {
        "plain": asked(
            f"conflation=50ms,{REDUCE},receipt",
            f"conflation=100ms,{REDUCE},receipt",
            f"conflation=350ms,pace=key,{REDUCE}",
            f"conflation=100ms,{OTHER_REDUCE}",
            f"conflation=100ms,{REDUCE},never=[/n = 2],receipt",
            "conflation=none",
        ),
        "merged": asked(
            "conflation=50ms,receipt",
            "conflation=100ms",
            "conflation=350ms,pace=key",
            "conflation=50ms,edge=leading",
            "conflation=100ms,flush_on=[/n = 2]",
            f"conflation=100ms,{REDUCE}",
            "conflation=none",
        ),
        "matched": asked(f"conflation=100ms,{REDUCE}", f"conflation=350ms,pace=key,{REDUCE}"),
        "always": asked("conflation=none", "conflation=100ms", "conflation=350ms,pace=key"),
    }
    counts: ClassVar[tuple[str, ...]] = ()
    commands: ClassVar[tuple[str, ...]] = (
        "subscribe",
        "sow_and_subscribe",
        "sow_and_delta_subscribe",
        "delta_subscribe",
    )

    def __init__(self) -> None:
        super().__init__()
        self.driver = ManualDriver()
        self.driver.topic("plain")
        self.driver.topic("merged", merge=MERGER)
        self.driver.topic("matched", match=KeySpec.parse("[/g]"))
        self.driver.topic("always", policy="always", merge=MERGER)
        self.accounts: list[Account] = []
        self.serial = self.joins = 0

    @initialize(picks=st.lists(st.tuples(PICK, PICK, st.booleans()), min_size=1, max_size=2))
    def begin(self, picks: list[tuple[int, int, bool]]) -> None:
        for topic, lane_spec, fast in picks:
            self.join(topic, lane_spec, fast, 0)

    @precondition(lambda self: len(self.accounts) < 3)
    @rule(topic=PICK, lane_spec=PICK, fast=st.booleans(), command=PICK)
    def join(self, topic: int, lane_spec: int, fast: bool, command: int) -> None:
        name = self.topics[topic % len(self.topics)]
        wanted = self.lane_specs[name][lane_spec % len(self.lane_specs[name])]
        self.joins += 1
        session = f"s{self.joins}"
        self.driver.session(session, messages_max=8 if name in self.counts else 1_000)
        chosen = self.commands[command % (2 if name == "always" else len(self.commands))]
        subscription = self.driver.subscribe(
            wanted.options, topic=name, session=session, wanted=wanted.filter_text, command=chosen
        )
        merges, is_apart = name in ("merged", "always"), name == "matched"
        account = Account(
            session, subscription, name, chosen, wanted, fast, merges, is_apart, name in self.counts
        )
        self.accounts.append(account)
        self.look()

    @precondition(lambda self: self.accounts)
    @rule(pick=PICK, letters=LETTERS)
    def publish(self, pick: int, letters: list[int]) -> None:
        self.say(self.accounts[pick % len(self.accounts)].topic, letters)
        self.look()

    @precondition(lambda self: self.accounts)
    @rule(pick=PICK, bursts=st.lists(st.tuples(LETTERS, st.sampled_from(STEPS)), max_size=5))
    def traffic(self, pick: int, bursts: list[tuple[list[int], str]]) -> None:
        """Messages for one of the readers, with time in between."""
        topic = self.accounts[pick % len(self.accounts)].topic
        for letters, step in bursts:
            self.say(topic, letters)
            self.driver.wait(step)
            self.look()

    @rule(duration=st.sampled_from(STEPS))
    def wait(self, duration: str) -> None:
        self.driver.wait(duration)
        self.look()

    @precondition(lambda self: self.accounts)
    @rule(pick=PICK, to=PICK)
    def change(self, pick: int, to: int) -> None:
        """Rules change-1 and change-2."""
        account = self.accounts[pick % len(self.accounts)]
        table = self.lane_specs[account.topic]
        wanted = table[to % len(table)]
        subscription = self.driver.request(
            wanted.options, topic=account.topic, wanted=wanted.filter_text, command=account.command
        )
        self.driver.engine.change(account.session, account.name, subscription, self.driver.now)
        account.changes(wanted)
        self.look()

    @precondition(lambda self: self.accounts)
    @rule(pick=PICK, bytes_max=st.sampled_from((1, 100, 250, PLENTY)))
    def take_a_piece(self, pick: int, bytes_max: int) -> None:
        self.receive(self.accounts[pick % len(self.accounts)], bytes_max)
        self.look()

    def say(self, topic: str, letters: list[int]) -> None:
        head = self.driver.engine.topic(topic).head
        documents: list[dict[str, object]] = []
        for offset, letter in enumerate(letters, head + 1):
            self.serial += 1
            value: dict[str, object] = {"k": "abc"[letter % 3], "n": letter // 3 % 4, "qty": 1}
            value |= {"s": self.serial, "all": [self.serial], "g": letter // 12}
            documents.append(value)
            for account in self.accounts:
                if account.topic == topic:
                    account.matched(self.serial, offset, value)
        self.driver.publish_documents(*documents, topic=topic)

    def receive(self, account: Account, bytes_max: int) -> bool:
        outputs = self.driver.take_once(bytes_max, account.session)
        for output in outputs:
            with expected():
                account.receive(output)
        return bool(outputs)

    def look(self) -> None:
        """Who is fast takes all there is; figures add up."""
        for account in list(self.accounts):
            rows = self.driver.engine.session_stats(account.session).subscriptions
            if not rows:  # its queue is full of what is never conflated: it is given up
                self.accounts.remove(account)
                continue
            while account.fast and self.receive(account, PLENTY):
                pass
            account.check(self.driver.engine.session_stats(account.session).subscriptions[0])

    def teardown(self) -> None:
        """Rule interval-3."""
        if sys.exception() is not None:
            return
        self.driver.wait("3s")
        for account in self.accounts:
            while self.receive(account, 300):
                pass
            (row,) = self.driver.engine.session_stats(account.session).subscriptions
            account.check_settled(row)


class ReceiptMachine(ConservedMachine):
    """Records are removed, and removals told; receipts and what no receipt counts sum up."""

    topics: ClassVar[tuple[str, ...]] = ("plain", "last", "merged")
    counts: ClassVar[tuple[str, ...]] = ("last",)
    lane_specs: ClassVar[dict[str, tuple[Asked, ...]]] = {
        "plain": asked(
            f"conflation=50ms,{REDUCE},receipt,oof",
            f"conflation=350ms,pace=key,{REDUCE},receipt,oof",
            f"conflation=100ms,{REDUCE},never=[/n = 2],receipt,oof",
            f"conflation=100ms,{REDUCE},flush_on=[/n = 2],receipt,oof",
            "conflation=none,oof",
        ),
        "last": asked(
            "conflation=50ms,receipt,oof",
            "conflation=350ms,pace=key,receipt,oof",
            "conflation=50ms,edge=leading,receipt,oof",
            "conflation=100ms,never=[/n = 2],receipt,oof",
            "conflation=100ms,flush_on=[/n = 2],receipt,oof",
            "conflation=100ms,receipt",
            "conflation=none,oof",
            "conflation=none",
        ),
        "merged": asked("conflation=50ms,receipt,oof", "conflation=350ms,pace=key,receipt,oof"),
    }

    def __init__(self) -> None:
        super().__init__()
        self.driver.topic("last")

    @precondition(lambda self: self.accounts)
    @rule(pick=PICK, keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True))
    def remove(self, pick: int, keys: list[str]) -> None:
        self.take_away(self.accounts[pick % len(self.accounts)].topic, keys)
        self.look()

    @precondition(lambda self: self.accounts)
    @rule(pick=PICK, keys=st.text("abcABC", min_size=2, max_size=7), step=st.sampled_from(STEPS))
    def come_and_go(self, pick: int, keys: str, step: str) -> None:
        """Messages and removals (capitals) in a row."""
        topic = self.accounts[pick % len(self.accounts)].topic
        for at, key in enumerate(keys):
            if key.isupper():
                self.take_away(topic, [key.lower()])
            else:
                self.say(topic, ["abc".index(key) + 3 * ((pick + at) % 8)])
        self.driver.wait(step)
        self.look()

    def take_away(self, topic: str, keys: list[str]) -> None:
        self.driver.remove(" ".join(f"{key}0" for key in keys), topic=topic)
