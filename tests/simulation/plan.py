"""A seed's plan: topics, what is published when, who listens how, and what goes wrong. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.link import Link
from tests.support.clocks.virtual_loop import SECOND

MS = SECOND // 1_000
INTERVALS = (("50ms", 50), ("100ms", 100), ("250ms", 250), ("1s", 1_000))
CALM_NS = 45 * SECOND
"""For so long nothing goes wrong and nothing is published at the end: time to come right."""

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic; without `keyed` it keeps no records."""

    name: str
    policy: str
    keyed: bool
    history: int

    @property
    def document(self) -> dict[str, object]:
        """What is put."""
        key = {"key": ["/k"]} if self.keyed else {}
        return {"conflation": self.policy, "history": {"messages": self.history}, **key}


@dataclass(frozen=True, slots=True)
class Step:
    """What a publisher does after a wait: publish values, or delete keys."""

    wait_ns: int
    values: tuple[Value, ...] = ()
    deletes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """One publisher of one topic."""

    topic: str
    acts: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """What a client asks for, as text and as what it means."""

    topic: TopicPlan
    options: str
    command: str
    form: str = "value"
    interval_ns: int = 0
    tick_ns: int = 0
    by_slots: bool = False
    oof: bool = False
    least: int | None = None

    @property
    def filter_text(self) -> str:
        """Values that are at least so high."""
        return "" if self.least is None else f"/v >= {self.least}"

    @property
    def delta(self) -> bool:
        """Whether it asks for patches."""
        return "delta" in self.command

    @property
    def snapshot(self) -> bool:
        """Whether it begins with all there is."""
        return "sow" in self.command

    def matches(self, value: Value) -> bool:
        """Whether it wants a message."""
        return self.least is None or value["v"] >= self.least

    @property
    def held_ns(self) -> int:
        """The longest that anything is held for it."""
        return self.interval_ns + self.tick_ns


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client; `seed` is of the lines that its connections have."""

    number: int
    subscription: SubscriptionPlan
    begins_ns: int
    temper: str
    seed: int

    def links(self, until_ns: int) -> Iterator[Callable[[int], Link]]:
        """For each connection, by the time when it is made, what it will be like."""
        chance = random.Random(self.seed)
        while True:
            yield lambda now: _link(chance, self.temper, now, until_ns)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides."""

    seed: int
    topics: tuple[TopicPlan, ...]
    publishers: tuple[PublisherPlan, ...]
    clients: tuple[ClientPlan, ...]
    troubles: tuple[tuple[int, str], ...]
    settings: dict[str, object]
    faults_end_ns: int
    wall_steps: tuple[tuple[int, int], ...] = field(default=())

    def topic(self, name: str) -> TopicPlan:
        """The topic of this name."""
        return next(topic for topic in self.topics if topic.name == name)


def make_plan(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(seed)
    ends_ns = chance.randint(1_000, 3_000) * MS
    topics = tuple(_topics(chance))
    clients = tuple(_client(chance, number, topics, ends_ns) for number in range(_crowd(chance)))
    serials = iter(range(1, 1 << 30))
    publishers = [_publisher(chance, topic, serials, ends_ns) for topic in topics]
    if chance.random() < 0.3:
        publishers.append(_publisher(chance, chance.choice(topics), serials, ends_ns))
    return Plan(
        seed,
        topics,
        tuple(publishers),
        clients,
        tuple(_troubles(chance, topics, ends_ns)),
        {
            "queue_messages_max": chance.choice((20, 100, 1_000)),
            "queue_bytes_max": chance.choice(("16KiB", "256KiB")),
            "write_timeout": chance.choice(("1s", "2s")),
            "write_buffer_bytes_max": chance.choice(("1KiB", "16KiB")),
            "heartbeat": chance.choice(("500ms", "5s")),
        },
        ends_ns if chance.random() < 0.5 else chance.randint(0, ends_ns),
        tuple(
            (chance.randint(0, ends_ns), chance.choice((-3_600_000, 3_600_000)))
            for _ in range(chance.choice((0, 0, 1, 3)))
        ),
    )


def _crowd(chance: random.Random) -> int:
    return chance.choice((2, 4, 5, 6, 8))


def _topics(chance: random.Random) -> Iterator[TopicPlan]:
    history = chance.choice((100_000, 100_000, 40))
    yield TopicPlan("px", chance.choice(("conflate", "conflate", "off", "always")), True, history)
    if chance.random() < 0.5:
        policy = chance.choice(("conflate", "off", "always", "unsubscribe"))
        keyed = chance.random() < 0.5
        yield TopicPlan("ev", policy, keyed, chance.choice((100_000, 100_000, 40)))


def _client(
    chance: random.Random, number: int, topics: tuple[TopicPlan, ...], ends_ns: int
) -> ClientPlan:
    begins_ns = 0 if chance.random() < 0.4 else chance.randint(0, ends_ns * 9 // 10)
    temper = chance.choice(("good", "good", "slow", "stalling", "leaving", "leaving", "mixed"))
    subscription = _subscription(chance, chance.choice(topics))
    return ClientPlan(number, subscription, begins_ns, temper, chance.getrandbits(32))


def _subscription(chance: random.Random, topic: TopicPlan) -> SubscriptionPlan:
    name, interval_ms = ("", 0) if chance.random() < 0.3 else chance.choice(INTERVALS)
    interval_ns = interval_ms * MS
    pace = chance.choice(("batch", "batch", "batch", "key", "leading")) if interval_ms else "none"
    form = chance.choice(("value", "value", "envelope", "batch"))
    command = "subscribe"
    if topic.keyed:
        command = chance.choice(("sow_and_subscribe",) * 3 + ("subscribe",))
        if chance.random() < 0.2:
            command = command.replace("subscribe", "delta_subscribe")
    oof = topic.keyed and chance.random() < 0.35
    options = [f"conflation={name}" if interval_ms else "conflation=none"]
    if interval_ms and not topic.keyed:
        options.append("conflation_key=[/k]")
    options += {"key": ["pace=key"], "leading": ["edge=leading"]}.get(pace, [])
    options += ["oof"] if oof else []
    paced = pace in ("key", "leading")
    return SubscriptionPlan(
        topic,
        ",".join(options),
        command,
        form,
        interval_ns,
        min(interval_ns // 20, 50 * MS) if paced else 0,
        bool(interval_ms) and (paced or form != "value" or "delta" in command),
        oof,
        chance.choice((None, None, None, 30, 60)),
    )


def _link(chance: random.Random, temper: str, now: int, until_ns: int) -> Link:
    """One connection's luck; nothing goes wrong once faults have ended."""
    latency_ns = chance.choice((0, 0, 1, 20)) * MS
    if temper == "mixed":
        temper = chance.choice(("good", "slow", "stalling", "leaving"))
    if temper == "good" or now >= until_ns:
        return Link(latency_ns=latency_ns)
    rate = None
    if temper == "slow" or chance.random() < 0.3:
        rate = chance.choice((2_000, 10_000, 50_000))
    stalls: list[tuple[int, int]] = []
    if temper == "stalling":
        start = now + chance.randint(0, 1_000) * MS
        stalls = [(start, start + chance.choice((60, 300, 900, 5_000)) * MS)]
    leaves = temper == "leaving" or chance.random() < 0.15
    return Link(
        rate,
        latency_ns,
        chance.choice((512, 4 << 10, 16 << 10)),
        chance.choice((100, 1_000, 1_460)),
        tuple(stalls),
        now + chance.randint(1, 1_200) * MS if leaves else None,
        leaves and chance.random() < 0.2,
    )


def _publisher(
    chance: random.Random, topic: TopicPlan, serials: Iterator[int], ends_ns: int
) -> PublisherPlan:
    keys = [f"k{number}" for number in range(chance.choice((1, 3, 10, 40)))]
    pad = chance.choice((0, 0, 40, 400, 2_000))
    style = chance.choice(("steady", "steady", "bursts", "hot", "rotation"))
    if style == "rotation":
        return PublisherPlan(topic.name, tuple(_rotation(chance, serials, ends_ns)))
    acts: list[Step] = []
    at = 0
    while at < ends_ns:
        wait_ns, count = _rhythm(chance, style)
        at += wait_ns
        if topic.keyed and chance.random() < 0.12:
            twice = dict.fromkeys(chance.choice(keys) for _ in range(2))
            acts.append(Step(wait_ns, deletes=tuple(twice)))
            continue
        hot = keys[:1] if style == "hot" and chance.random() < 0.8 else keys
        values = (_value(chance, chance.choice(hot), next(serials), pad) for _ in range(count))
        acts.append(Step(wait_ns, tuple(values)))
    return PublisherPlan(topic.name, tuple(acts))


def _rotation(chance: random.Random, serials: Iterator[int], ends_ns: int) -> Iterator[Step]:
    """Large values of many keys in turn, and small ones of a key that never rests."""
    wait_ns, pad = chance.choice((5, 10)) * MS, chance.choice((400, 2_000))
    keys = chance.choice((5, 40))
    for turn in range(ends_ns // wait_ns):
        hot = _value(chance, "hot", next(serials), 0)
        cold = _value(chance, f"k{turn % keys}", next(serials), pad)
        yield Step(wait_ns, (hot, cold))


def _rhythm(chance: random.Random, style: str) -> tuple[int, int]:
    """How long until the next request, and how many messages it has."""
    if style == "bursts":
        return chance.randint(50, 700) * MS, chance.randint(5, 60)
    if style == "hot":
        return chance.randint(1, 40) * MS, 1
    return chance.choice((1, 10, 25, 50)) * MS, chance.choice((1, 1, 1, 2, 4))


def _value(chance: random.Random, own: str, serial: int, pad: int) -> Value:
    value: Value = {"k": own, "n": serial, "v": chance.randint(0, 99)}
    if pad:
        value["pad"] = "x" * chance.randint(0, pad)
    if chance.random() < 0.3:
        value["f"] = {"a": chance.choice((1, 1.5, True, "1")), "b": chance.randint(0, 3)}
    return value


def _troubles(
    chance: random.Random, topics: tuple[TopicPlan, ...], ends_ns: int
) -> Iterator[tuple[int, str]]:
    """What happens to all: streams that are told to come back, a gateway that is another one."""
    if chance.random() < 0.15:
        yield chance.randint(0, ends_ns), "goodbye"
    if chance.random() < 0.15:
        yield chance.randint(0, ends_ns), "restart"
    if chance.random() < 0.1:
        yield chance.randint(0, ends_ns), f"again {chance.choice(topics).name}"
