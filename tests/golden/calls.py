"""A seed's calls: plain values, made from `random.Random(seed)` alone, before anything runs.

Each call is a verb and its arguments. A place in a topic is said as a distance from the newest
message, because the transcriber numbers them. Two hundred lines of JSON say all that a seed does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.golden import words

Call = tuple[str, dict[str, Any]]

PLENTY = 1 << 30
STEPS_NS = tuple(round(ms * 1_000_000) for ms in (0, 1, 3.5, 20, 49, 50, 100, 100, 333, 1_000))
SIZES = (1, 60, 150, 150, 1_000, PLENTY, PLENTY)
LIMITS = (
    [PLENTY, PLENTY], [PLENTY, PLENTY], [PLENTY, PLENTY], [1, PLENTY], [2, PLENTY], [4, PLENTY],
    [9, PLENTY], [9, PLENTY, 60, 30], [30, PLENTY], [1_000, 150], [1_000, 600, 90, 20],
)  # fmt: skip
REASONS = (
    "SHUTDOWN", "CLOSED_BY_ADMIN", "REPLACED", "UNSUBSCRIBED", "WRITE_TIMEOUT",
)  # fmt: skip
COMMANDS = (
    None, None, "subscribe", "sow", "sow_and_subscribe", "sow_and_subscribe", "delta_subscribe",
    "sow_and_delta_subscribe", "sow_and_delta_subscribe",
)  # fmt: skip
WEIGHTS = {
    "publish": 26, "advance": 20, "take": 20, "subscribe": 9, "traffic": 8, "change": 5,
    "unsubscribe": 2, "open": 3, "close": 0.7, "tune": 1, "unsent": 2, "conflate_idle": 3,
    "trace": 2,
    "read_traces": 1, "end_trace": 0.5, "ask": 2, "redefine": 1, "drop": 0.3, "renew": 0.7,
    "checkpoint": 0.5, "bring": 2, "archive": 1, "history": 0.6, "lost": 0.3, "restart": 0.6,
    "crowd": 0.6, "records": 0.6, "estimate": 0.5,
}  # fmt: skip
FLOODS_A_CALL = 1 / 10_000


@dataclass(slots=True)
class Maker:
    """Makes one seed's calls; it knows names, and nothing of what the engine answers."""

    chance: random.Random
    calls: list[Call] = field(default_factory=list)
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: list[str] = field(default_factory=list)
    subscribers: list[tuple[str, str, str]] = field(default_factory=list)
    serial: int = 0

    def make(self) -> list[Call]:
        """All of them."""
        chance = self.chance
        for name in ("t", "u", "v")[: chance.choice((1, 1, 2, 3))]:
            self.define(name)
        for _ in range(chance.randint(1, 3)):
            self.open()
        for _ in range(chance.randint(1, 5)):
            self.subscribe()
        verbs, weights = list(WEIGHTS), list(WEIGHTS.values())
        for verb in chance.choices(verbs, weights, k=chance.randint(15, 70)):
            made: Callable[[], None] = getattr(self, verb)
            made()
            if self.chance.random() < FLOODS_A_CALL:
                self.flood()
        return self.calls

    def call(self, verb: str, **arguments: Any) -> None:
        self.calls.append((verb, arguments))

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def a_topic(self) -> str:
        """One that there is; seldom one that there is not."""
        if self.chance.random() < 0.01:
            return "nowhere"
        return self.chance.choice(list(self.topics))

    def a_session(self) -> str:
        """One that there may be; closed ones are among them."""
        recent = self.sessions[-3:] if self.chance.random() < 0.7 else self.sessions
        return self.chance.choice(recent)

    # Topics

    def define(self, name: str) -> None:
        self.topics[name] = words.topic(self.chance)
        self.call("define", topic=name, definition=self.topics[name])

    def redefine(self) -> None:
        """All but its key, its type and whether it keeps records."""
        name = self.chance.choice(list(self.topics))
        other, before = words.topic(self.chance), self.topics[name]
        for given in ("key", "kind", "retains"):
            other[given] = before[given]
        if before["kind"] != "json":
            other.update(merge=None, match=None, replaces=False)
        if before["kind"] == "series":
            other["policy"] = "off"
        if not before["retains"]:
            other["expiration_ms"] = None
        self.topics[name] = other
        self.call("define", topic=name, definition=other)

    def drop(self) -> None:
        """It ends, and mostly begins again with nothing in it."""
        name = self.a_topic()
        self.call("drop", topic=name)
        if name in self.topics and (len(self.topics) == 1 or self.chance.random() < 0.8):
            self.define(name)
        else:
            self.topics.pop(name, None)

    def renew(self) -> None:
        self.call("renew", topic=self.a_topic(), **self.keeping())

    def restart(self) -> None:
        """The topic is made anew from what was kept of it, in the same epoch."""
        name = self.chance.choice(list(self.topics))
        self.call("restart", topic=name, definition=self.topics[name], **self.keeping())

    def keeping(self) -> dict[str, int]:
        return {
            "journal": self.chance.choice((0, 2, 5, 100)),
            "tombstones": self.chance.choice((0, 1, 50)),
            "shift_ms": self.chance.choice((0, 0, 300)),
        }

    def checkpoint(self) -> None:
        self.call("checkpoint", topic=self.a_topic(), back=self.chance.randint(0, 6))

    def archive(self) -> None:
        """An archive has the topic from its beginning, nearly up to now."""
        first, back = self.chance.choice((0, 0, 3)), self.chance.choice((0, 0, 1, 5))
        self.call("archive", topic=self.a_topic(), first=first, back=back)

    def bring(self) -> None:
        self.call("bring", most=self.chance.choice((1, 3, 100)))

    def lost(self) -> None:
        """What was wanted of the archive is not there any more."""
        self.call("bring", most=0)

    def history(self) -> None:
        back = self.chance.choice((None, 0, 2, 9, -3))
        self.call("history", topic=self.a_topic(), back=back, most=self.chance.choice((1, 50)))

    def publish(self) -> None:
        name = self.a_topic()
        shape = self.topics.get(name) or next(iter(self.topics.values()))
        self.call("publish", topic=name, rows=words.messages(self.chance, shape))

    def records(self) -> None:
        self.call("records", topic=self.a_topic(), back=self.chance.randint(0, 9))

    def estimate(self) -> None:
        if self.subscribers:
            session, name, topic = self.chance.choice(self.subscribers)
            self.call("estimate", session=session, name=name, topic=topic)

    def flood(self) -> None:
        """More than anything keeps: removals, messages never to be conflated, or much text.

        Groups and windows of ten thousand records would take minutes.
        """
        if any("projection=" in str(call) or "top_n=" in str(call) for call in self.calls):
            return
        name = self.chance.choice(list(self.topics))
        brings = self.chance.choice(("removals", "exempts", "text"))
        self.call("flood", topic=name, brings=brings, rows=10_100)
        self.call("flood", topic=name, brings="plain", rows=6_000)

    def crowd(self) -> None:
        """Many messages at once."""
        name = self.chance.choice(list(self.topics))
        rows = words.messages(self.chance, self.topics[name], most=60)
        self.call("publish", topic=name, rows=rows)

    def traffic(self) -> None:
        """Messages with time in between, every deadline served as it comes."""
        for _ in range(self.chance.randint(2, 5)):
            self.publish()
            self.call("serve", step_ns=self.chance.choice(STEPS_NS))

    # Sessions

    def open(self) -> None:
        limits = self.chance.choice(LIMITS)
        name = self.fresh("s")
        self.sessions.append(name)
        lasts, conflated = self.chance.random() < 0.8, self.chance.random() < 0.85
        self.call("open", session=name, limits=limits, lasts=lasts, conflated=conflated)

    def close(self) -> None:
        reason = self.chance.choice((None, *REASONS))
        self.call("close", session=self.a_session(), reason=reason)

    def tune(self) -> None:
        limits, conflated = self.chance.choice(LIMITS), self.chance.random() < 0.7
        self.call("tune", session=self.a_session(), limits=limits, conflated=conflated)

    def unsent(self) -> None:
        size = self.chance.choice((0, 0, 100, 500, 5_000))
        self.call("unsent", session=self.a_session(), unsent_bytes=size)

    def conflate_idle(self) -> None:
        self.call("conflate_idle")

    def ask(self) -> None:
        self.call("stats")
        self.call("session_stats", session=self.a_session())
        self.call("topic_stats", topic=self.a_topic())

    # Subscriptions

    def subscribe(self) -> None:
        chance, topic = self.chance, self.a_topic()
        by_pattern = chance.random() < 0.08
        session, name = self.a_session(), self.fresh("p" if by_pattern else "n")
        asked = self.asked(self.topics.get(topic) or next(iter(self.topics.values())))
        asked["by_pattern"] = by_pattern
        for taken in list(self.topics) if by_pattern else [topic]:
            self.subscribers.append((session, name, taken))
            self.call("subscribe", session=session, name=name, topic=taken, asked=asked)

    def asked(self, topic: dict[str, Any]) -> dict[str, Any]:
        """What a subscription says; `resume` and a replay's `start` are distances."""
        chance = self.chance
        replay = chance.random() < 0.14
        command = chance.choice(COMMANDS) if not replay else chance.choice((None, "subscribe"))
        if command and "sow" in command and not topic["retains"] and chance.random() < 0.9:
            command = "subscribe"
        has_fields = topic["kind"] in ("json", "series")
        text = words.options(chance, topic, command=command, replay=replay)
        wanted = chance.choice(words.FILTERS) if chance.random() < 0.35 and has_fields else ""
        if chance.random() < 0.01:
            wanted = chance.choice(words.BAD_FILTERS)
        place = None
        if replay:
            place = self.start()
            text = ",".join(part for part in (text, words.replayed(chance, "@")) if part)
        resumes = not replay and chance.random() < 0.16
        return {
            "options": text, "start": place, "filter": wanted, "command": command,
            "defaults": "conflation=100ms,conflation_key=[/k]" if chance.random() < 0.06 else "",
            "order_by": chance.choice(words.ORDERS) if chance.random() < 0.2 and has_fields
            else "",
            "pace": chance.choice(("batch", "batch", "batch", "key")),
            "resume": self.place() if resumes else None,
            "counted": chance.random() < 0.25, "announced": chance.random() < 0.2,
        }  # fmt: skip

    def start(self) -> dict[str, Any]:
        """Where a replay begins."""
        match self.chance.randint(0, 5):
            case 0 | 1:
                return {"word": "epoch"}
            case 2:
                return {"word": "now"}
            case 3:
                return {"ago_ms": self.chance.choice((0, 40, 200, 1_500, 60_000, -500))}
            case _:
                return self.place()

    def place(self) -> dict[str, Any]:
        """A bookmark: so many messages ago, seldom of another epoch or ahead of the topic."""
        found: dict[str, Any] = {"back": self.chance.choice((0, 1, 2, 4, 8, 15, 30, -2))}
        if self.chance.random() < 0.08:
            found["epoch"] = "other"
        return found

    def change(self) -> None:
        """Other options, another filter, another order; pause and go on."""
        if not self.subscribers:
            return
        chance = self.chance
        session, name, topic = chance.choice(self.subscribers)
        shape = self.topics.get(topic)
        if shape is None:
            return
        text = words.options(chance, shape, command=None, replay=chance.random() < 0.3)
        if chance.random() < 0.25:
            text = chance.choice(
                ("", "pause", "resume", "pause", "resume", "replace,conflation=1s")
            )
        asked: dict[str, Any] = {"options": text}
        if chance.random() < 0.3 and shape["kind"] == "json":
            asked["filter"] = chance.choice(("", *words.FILTERS))
        if chance.random() < 0.1 and shape["kind"] == "json":
            asked["order_by"] = chance.choice(("", *words.ORDERS))
        self.call("change", session=session, name=name, topic=topic, asked=asked)

    def unsubscribe(self) -> None:
        if self.subscribers:
            session, name, _ = self.chance.choice(self.subscribers)
            reason = self.chance.choice(("REQUESTED", "REQUESTED", "CONTROL"))
            self.call("unsubscribe", session=session, name=name, reason=reason)

    # Time and what goes out

    def advance(self) -> None:
        """All that fell due meanwhile at once, or every deadline as it comes."""
        verb = "advance" if self.chance.random() < 0.4 else "serve"
        self.call(verb, step_ns=self.chance.choice(STEPS_NS))

    def take(self) -> None:
        """One session takes a piece, or all that there is in pieces."""
        size, whole = self.chance.choice(SIZES), self.chance.random() < 0.5
        self.call("take", session=self.a_session(), bytes_max=size, whole=whole)

    # Traces

    def trace(self) -> None:
        if self.subscribers:
            session, name, topic = self.chance.choice(self.subscribers)
            self.call("trace", session=session, name=name, topic=topic)

    def read_traces(self) -> None:
        self.call("read_traces")

    def end_trace(self) -> None:
        self.call("end_trace", number=self.chance.randint(0, 3))


def make_calls(seed: int) -> list[Call]:
    """The calls of a seed, the same on every machine."""
    return Maker(random.Random(seed)).make()
