"""Reference model of a subscriber: it checks each row that was sent against the rules."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.support.models.boards import Key, Message, TopicModel, key_text
from tests.support.models.engine_model import (
    LaneModel,
    LaneSpec,
    Mark,
    OpeningModel,
    Replica,
    Sums,
    newest,
)
from tidegate.conflation.frame import Frame, receipt_of
from tidegate.conflation.outputs import GroupBegin, GroupEnd, Output, Resumed, Rows


@dataclass(eq=False)
class SubscriberModel:
    """One subscription and all that it was sent; `receive_row` asserts the rules."""

    name: str
    topic: TopicModel
    lane: LaneModel | None
    lane_spec: LaneSpec
    fast: bool
    replica: Replica
    opening: OpeningModel | None
    cut: int = 0
    sent: dict[Key, Message] = field(default_factory=dict)
    sent_at: dict[Key, int] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    queue: deque[Message] = field(default_factory=deque)
    answer: deque[Message] = field(default_factory=deque)
    conflated_through: int = 0
    last_offset: int = 0
    mark: int = 0
    script: deque[tuple[object, ...]] = field(default_factory=deque)
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cut = self.mark = self.topic.head
        if self.opening is not None:
            self.script.extend(self.opening.script(self.topic))

    @property
    def fields(self) -> tuple[str, ...]:
        return self.topic.key if self.lane_spec.fields is None else self.lane_spec.fields

    @property
    def since_join(self) -> list[Message]:
        return self.topic.after(self.cut)

    def enqueue(self, new: list[Message]) -> None:
        """An every-message queue keeps all; its conflated part keeps the newest of each key."""
        keys = {message.key_of(self.topic.key) for message in new}
        kept = (
            message
            for message in self.queue
            if message.offset > self.conflated_through or message.key_of(self.topic.key) not in keys
        )
        self.queue = deque([*kept, *new])

    def conflate_queue(self) -> None:
        """The whole queue is conflated."""
        self.conflated_through = self.topic.head
        self.queue = deque(newest(list(self.queue), self.topic.key).values())

    def receive(self, output: Output, bytes_max: int, now: int) -> None:
        """One output: opening rows exactly, live rows by the rules."""
        match output:
            case Resumed(mode=mode, gap_messages=gap):
                assert self.script.popleft() == ("resumed", mode.value, gap)
            case GroupBegin(rows=rows):
                assert self.script.popleft() == ("begin", rows)
                whole = self.topic.key and set(self.fields) <= set(self.topic.key)
                self.replica = Replica(0 if whole else self.cut)
            case GroupEnd(bookmark=bookmark):
                assert self.script.popleft() == ("end", bookmark)
                self.remember(self.cut)
            case Rows():
                self.receive_rows(output, bytes_max, now)

    def receive_rows(self, output: Rows, bytes_max: int, now: int) -> None:
        batch, topic = output.batch, self.topic
        assert (output.topic, output.epoch) == (topic.name, topic.epoch)
        assert batch.frames, "an empty flush sends nothing"
        assert batch.payload_bytes <= bytes_max or len(batch.frames) == 1
        received = [topic.messages[frame.offset - 1] for frame in batch.frames]
        fields = topic.key or (self.fields if self.lane_spec.interval_ns else ())
        for message, frame in zip(received, batch.frames, strict=True):
            assert frame.payload == message.payload
            assert frame.key == (key_text(message.value, fields) if fields else "")
        if self.script:
            for message in received:
                assert self.script.popleft() == (output.op, message)
                self.replica.learn(message.key_of(self.fields), message.offset)
            assert batch.low_water == self.id_within_opening(received[-1])
        else:
            assert self.lane is not None
            assert output.op == "publish"
            shared = not self.answer and self.in_step(received, batch.low_water)
            if not shared or self.lane_spec.is_stateful:
                self.answer = self.answer or self.next_answer()
            for message, frame in zip(received, batch.frames, strict=True):
                due = self.answer.popleft() if self.answer else message
                if self.lane_spec.is_stateful:
                    self.check_count(message, frame)
                    assert due is message, "what was flushed and missed, in order"
                assert due.key_of(self.fields) == message.key_of(self.fields), "wrong order"
                self.receive_row(message, shared, now)
            whole = batch.low_water is not None
            assert not self.lane.interval_ns or whole != bool(self.answer), "the last has the id"
            self.receive_low_water(batch.low_water)
        if batch.low_water is not None:
            self.remember(batch.low_water)

    def id_within_opening(self, last: Message) -> int | None:
        """Rule resume-6: the end has an id, and each piece of rows that are in order."""
        if not self.script:
            return self.cut
        is_in_order = self.opening is not None and self.opening.is_in_order
        return last.offset if is_in_order else None

    def in_step(self, received: list[Message], low_water: int | None) -> bool:
        """Whether these rows equal the shared flush."""
        assert self.lane is not None
        complete = low_water == max(self.lane.low_water(), self.cut)
        return complete and received == self.lane.last_flush

    def next_answer(self) -> deque[Message]:
        """The flushes that a member missed (rule delta-6), or newest rows (rule interval-10)."""
        if self.lane is None or not self.lane.interval_ns:
            return deque()
        is_round = not self.lane_spec.is_stateful
        candidates = newest(self.topic.messages, self.fields) if is_round else self.lane.flushed
        missed = [
            message
            for own_key, message in candidates.items()
            if message.offset > max(self.cut, self.sent_offset(own_key))
        ]
        return deque(sorted(missed, key=lambda message: message.offset))

    def sent_offset(self, own_key: Key) -> int:
        """The offset of a key's last row; 0 if there was none."""
        return self.sent[own_key].offset if own_key in self.sent else 0

    def check_count(self, message: Message, frame: Frame) -> None:
        """Rule delta-6: a row counts the messages since its key's last one, or the cut."""
        own_key = message.key_of(self.fields)
        since = max(self.cut, self.sent_offset(own_key))
        represented = [m for m in self.topic.after(since) if m.key_of(self.fields) == own_key]
        represented = [m for m in represented if m.offset <= message.offset]
        count = receipt_of(frame)
        assert (count.messages, count.first) == (len(represented), represented[0].offset)

    def remember(self, offset: int) -> None:
        """A client may resume from this id; check that it would lose nothing."""
        self.check_replica(offset)
        name, epoch = self.topic.name, self.topic.epoch
        self.marks.append(Mark(name, epoch, offset, self.lane_spec, self.replica.copy()))

    def receive_row(self, message: Message, shared: bool, now: int) -> None:
        """A live row: order, truth, rate (rules board-1, interval-2, interval-6, interval-10)."""
        assert self.lane is not None
        assert message.offset > self.cut, "rows at or below the cut never come from the lane"
        own_key = message.key_of(self.fields)
        last = self.sent.get(own_key)
        assert last is None or message.offset > last.offset, "no repeat, no step back"
        if self.lane.interval_ns:
            if not self.lane_spec.is_stateful:
                flushed = shared and self.lane.flushed.get(own_key) is message
                is_newest = newest(self.topic.messages, self.fields)[own_key] is message
                assert flushed or is_newest, "the newest at its flush, or when it is taken late"
            if self.fast and own_key in self.sent_at:
                apart_ns = now - self.sent_at[own_key]
                assert apart_ns >= self.lane.interval_ns, "one update per key per interval"
        else:
            assert self.queue.popleft() is message, "every message, in order"
            assert message.offset <= self.lane.position, "not before the flush"
        if self.lane.pace == "batch" and (shared or self.lane_spec.is_stateful):
            assert message.offset > self.last_offset, "publication order"
        self.last_offset = message.offset
        self.sent[own_key], self.sent_at[own_key] = message, now
        self.delivered.add(message.offset)
        self.replica.learn(own_key, message.offset)

    def receive_low_water(self, low_water: int | None) -> None:
        """Rule resume-6: nothing at or below it is still held or queued; it never steps back."""
        assert self.lane is not None
        if self.fast:
            assert low_water == max(self.lane.low_water(), self.cut), "as high as it can be"
        if low_water is None:
            return
        assert self.mark <= low_water <= self.topic.head, "ids never step back"
        self.mark = low_water
        for own_key, last in newest(self.since_join, self.fields).items():
            if self.lane.interval_ns and last.offset <= low_water:
                assert self.sent.get(own_key) is last, "the id covers an unsent message"
        assert not self.queue or self.queue[0].offset > low_water, "the id covers an unsent message"
        self.check_replica(low_water)

    def check_replica(self, position: int) -> None:
        """A replica at a position equals the board there, but for keys that changed since."""
        for own_key, last in newest(self.topic.messages, self.fields).items():
            if last.offset <= position:
                held = self.replica.offsets.get(own_key)
                unknown = held is None and last.offset <= self.replica.since
                assert held == last.offset or unknown, f"{own_key}: {held}, not {last.offset}"

    def check_complete(self) -> None:
        """Everything flushed has been taken: rules interval-3, interval-2 and interval-10."""
        if self.lane is None:
            return
        for own_key, message in self.lane.flushed.items():
            missed = message.offset > self.cut and self.sent.get(own_key) is not message
            newer = not self.lane_spec.is_stateful and self.sent_offset(own_key) > message.offset
            moved_on = not self.fast and any(m.key_of(self.fields) == own_key for m in self.queue)
            assert not missed or newer or moved_on, "flushed, but not delivered"
        queued = self.queue and self.queue[0].offset <= self.lane.position
        assert self.lane.interval_ns or not queued, "flushed, but not delivered"

    def check_age(self, now: int) -> None:
        """Nothing is held longer than the interval (`pace=key`: plus a tick)."""
        assert self.lane is not None
        waiting = [message for message in self.since_join if self.waits(message)]
        hold_max_ns = self.lane.interval_ns + (self.lane.tick_ns if self.lane.pace == "key" else 0)
        for message in waiting:
            assert now < message.at + hold_max_ns, "held too long"

    def waits(self, message: Message) -> bool:
        """Whether the message's key still awaits this message or a newer one."""
        if self.lane is not None and not self.lane.interval_ns:
            return message in self.queue
        last = self.sent.get(message.key_of(self.fields))
        return last is None or last.offset < message.offset

    def sums(self) -> Sums:
        """Counts by message: delivered, waiting as its key's newest, or conflated."""
        if self.lane is None:
            return Sums()
        matched = self.since_join
        if self.lane.interval_ns:
            waiting = {
                message for message in newest(matched, self.fields).values() if self.waits(message)
            }
            waiting.update(self.answer if self.lane_spec.is_stateful else ())
        else:
            waiting = set(self.queue)
        conflated = [m for m in matched if m.offset not in self.delivered and m not in waiting]
        return Sums(len(matched), len(self.delivered), len(conflated), len(waiting))


@dataclass(eq=False)
class SessionModel:
    """A session of the model; `expected_outputs` are its control outputs still to come."""

    name: str
    fast: bool
    limits: tuple[int, int]
    subscribers: dict[str, SubscriberModel] = field(default_factory=dict)
    expected_outputs: deque[Output] = field(default_factory=deque)
    ready: bool = False
    ended: bool = False

    def queues(self) -> list[SubscriberModel]:
        return [it for it in self.subscribers.values() if it.lane and not it.lane.interval_ns]

    def queued(self) -> tuple[int, int]:
        waiting = [message for subscriber in self.queues() for message in subscriber.queue]
        return len(waiting), sum(len(message.payload) for message in waiting)

    def over_limit(self) -> bool:
        messages, size = self.queued()
        return messages > self.limits[0] or size > self.limits[1]
