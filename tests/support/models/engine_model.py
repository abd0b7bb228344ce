"""The naive model: every message ever published is kept, and every query scans all of them.

It is written from the rules in docs/semantics, not from the engine, and shares no code with
it. Keys are tuples of field values; a topic without key has the one key `()`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.models.boards import MILLISECOND, Key, Message, TopicModel


def newest(messages: list[Message], names: tuple[str, ...]) -> dict[Key, Message]:
    """The last message of each key, in the order of those last messages."""
    last = {message.key_of(names): message for message in messages}
    return dict(sorted(last.items(), key=lambda item: item[1].offset))


@dataclass(frozen=True)
class LaneSpec:
    """What an options string asks for; `fields` None is the SOW key."""

    options: str
    interval_ns: int = 0
    fields: tuple[str, ...] | None = None
    pace: str = "batch"
    counted: bool = False

    @property
    def is_stateful(self) -> bool:
        """Whether its lane looks at every message."""
        return self.pace == "key" or (bool(self.interval_ns) and self.counted)


@dataclass(eq=False)
class LaneModel:
    """Timers and what was flushed last, of each key: rules interval-1 to interval-5."""

    topic: TopicModel
    fields: tuple[str, ...]
    interval_ns: int
    pace: str
    position: int = 0
    opened: dict[Key, tuple[int, int]] = field(default_factory=dict)
    flushed: dict[Key, Message] = field(default_factory=dict)
    last_flush: list[Message] = field(default_factory=list)

    @property
    def tick_ns(self) -> int:
        """What deadlines are rounded up to; 1 where they are not."""
        paced = self.pace == "key"
        return min(self.interval_ns // 20, 50 * MILLISECOND) if paced else 1

    def accept(self, new: list[Message], now: int) -> None:
        """The first message that is held opens the interval."""
        due = now + self.interval_ns
        if due % self.tick_ns:
            due += self.tick_ns - due % self.tick_ns
        for message in new:
            self.opened.setdefault(self.timer_of(message), (due, message.offset))

    def timer_of(self, message: Message) -> Key:
        """One timer for all keys, or one for each."""
        return message.key_of(self.fields) if self.pace == "key" else ("all",)

    def deadline(self) -> int | None:
        return min((due for due, _ in self.opened.values()), default=None)

    def advance(self, now: int) -> None:
        due = {timer for timer, (at, _) in self.opened.items() if at <= now}
        if not due:
            return
        held = [message for message in self.topic.after(0) if self.holds(message)]
        leaving = [message for message in held if self.timer_of(message) in due]
        self.last_flush = list(newest(leaving, self.fields).values())
        self.flushed.update(newest(leaving, self.fields))
        for timer in due:
            del self.opened[timer]
        self.position = self.topic.head

    def holds(self, message: Message) -> bool:
        """Whether a message, or a newer one in its place, waits for the next flush."""
        first = self.opened.get(self.timer_of(message))
        return first is not None and message.offset >= first[1]

    def low_water(self) -> int:
        """Below the first message that is held."""
        return min((first for _, first in self.opened.values()), default=self.topic.head + 1) - 1


@dataclass
class Replica:
    """What a client believes: the offset of the newest message of each key.

    It knows every change after `since`; what was there before it may not have been told.
    """

    since: int
    offsets: dict[Key, int] = field(default_factory=dict)

    def learn(self, key: Key, offset: int) -> None:
        """Rows tell nothing about a time of which not every change was told."""
        if offset > self.since:
            self.offsets[key] = offset

    def copy(self) -> Replica:
        return Replica(self.since, dict(self.offsets))


@dataclass(frozen=True)
class Mark:
    """An id that a client has seen, and what it held at that moment."""

    topic: str
    epoch: str
    offset: int
    lane_spec: LaneSpec
    replica: Replica


@dataclass(frozen=True)
class OpeningModel:
    """What a subscription starts with (rules resume-1 to resume-5)."""

    rows: list[Message]
    group: bool
    mode: str | None = None
    gap: int | None = None
    is_in_order: bool = False

    def script(self, topic: TopicModel) -> list[tuple[object, ...]]:
        """What must be received, in this order."""
        op = "snapshot" if self.group else "publish"
        lines: list[tuple[object, ...]] = [("resumed", self.mode, self.gap)] if self.mode else []
        lines += [("begin", len(self.rows))] if self.group else []
        lines += [(op, message) for message in self.rows]
        lines += [("end", f"{topic.epoch}-{topic.head}")] if self.group else []
        return lines


def resume_mode(
    topic: TopicModel, lane_spec: LaneSpec, epoch: str, offset: int, limits: tuple[int, int]
) -> str:
    """CONTRACT 4.2 for what is served so far."""
    if epoch != topic.epoch or offset > topic.head:
        return "snapshot"
    of_key_fields = topic.key and set(lane_spec.fields or topic.key) <= set(topic.key)
    if lane_spec.interval_ns and of_key_fields:
        return "changes"
    if offset < topic.dropped_through:
        return "snapshot"
    if lane_spec.interval_ns:
        return "replay"
    missed = topic.after(offset)
    too_much = (
        len(missed) > limits[0] or sum(len(message.payload) for message in missed) > limits[1]
    )
    by_record = bool(topic.key) and topic.policy == "conflate"
    return "changes" if too_much and by_record else "replay"


def opening(
    topic: TopicModel,
    lane_spec: LaneSpec,
    command: str,
    resume: tuple[str, int] | None,
    limits: tuple[int, int],
) -> OpeningModel | None:
    """The rows that a new subscription is owed before its lane's."""
    records = list(newest(topic.messages, topic.key).values()) if topic.key else []
    if resume is None:
        return None if command == "subscribe" else OpeningModel(records, group=True)
    epoch, offset = resume
    mode = resume_mode(topic, lane_spec, epoch, offset, limits)
    known = epoch == topic.epoch and offset <= topic.head
    gap = topic.head - offset if known else None
    if mode == "snapshot":
        return OpeningModel(records, True, mode, gap)
    missed = topic.after(offset)
    if (
        mode == "changes" or lane_spec.interval_ns
    ):  # all was published at one time: a single interval
        fields = (
            topic.key if not lane_spec.interval_ns or lane_spec.fields is None else lane_spec.fields
        )
        missed = list(newest(missed, fields).values())
    # The rest of a replay with an interval would be other rows: only its end can be resumed from.
    is_in_order = (mode == "changes") == bool(lane_spec.interval_ns)
    return OpeningModel(missed, False, mode, gap, is_in_order)


@dataclass
class Sums:
    """matched = delivered + conflated + dropped + waiting."""

    matched: int = 0
    delivered: int = 0
    conflated: int = 0
    waiting: int = 0
    dropped: int = 0

    def add(self, other: Sums) -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
