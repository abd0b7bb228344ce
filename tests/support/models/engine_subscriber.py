"""What each subscriber was sent, held against the rules row by row."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field

from tests.support.models.engine_model import (
    Key,
    LaneModel,
    LaneSpec,
    Mark,
    OpeningModel,
    Replica,
    Said,
    Sums,
    TopicModel,
    newest,
)
from tidegate.conflation.frame import Frame, receipt_of
from tidegate.conflation.outputs import GroupBegin, GroupEnd, Output, Resumed, Rows


@dataclass(eq=False)
class SubscriberModel:
    """One subscription and all that it was sent; `receive_row` refuses what breaks a rule."""

    name: str
    topic: TopicModel
    lane: LaneModel | None
    lane_spec: LaneSpec
    fast: bool
    replica: Replica
    opening: OpeningModel | None
    cut: int = 0
    sent: dict[Key, Said] = field(default_factory=dict)
    sent_at: dict[Key, int] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    queue: deque[Said] = field(default_factory=deque)
    answer: deque[Said] = field(default_factory=deque)
    given_up_to: int = 0
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
    def since_join(self) -> list[Said]:
        return self.topic.after(self.cut)

    def enqueue(self, new: list[Said]) -> None:
        """A list keeps every message; what was given up keeps the newest of each key."""
        keys = {said.key(self.topic.key) for said in new}
        kept = (
            said
            for said in self.queue
            if said.offset > self.given_up_to or said.key(self.topic.key) not in keys
        )
        self.queue = deque([*kept, *new])

    def give_up(self) -> None:
        """The whole queue is conflated."""
        self.given_up_to = self.topic.head
        self.queue = deque(newest(list(self.queue), self.topic.key).values())

    def receive(self, output: Output, bytes_max: int, now: int) -> None:
        """One output: openings to the letter, live rows by the rules."""
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
        received = [topic.said[frame.offset - 1] for frame in batch.frames]
        fields = topic.key or (self.fields if self.lane_spec.interval_ns else ())
        for said, frame in zip(received, batch.frames, strict=True):
            assert frame.payload == said.payload
            assert frame.key == (key_text(said.key(fields)) if fields else "")
        if self.script:
            for said in received:
                assert self.script.popleft() == (output.op, said)
                self.replica.learn(said.key(self.fields), said.offset)
            assert batch.low_water == (None if self.script else self.cut)
        else:
            assert self.lane is not None
            assert output.op == "publish"
            shared = not self.answer and self.in_step(received, batch.low_water)
            if not shared or self.lane_spec.by_slots:
                self.answer = self.answer or self.next_answer()
            for said, frame in zip(received, batch.frames, strict=True):
                due = self.answer.popleft() if self.answer else said
                if self.lane_spec.by_slots:
                    self.check_count(said, frame)
                    assert due is said, "what was flushed and missed, in order"
                assert due.key(self.fields) == said.key(self.fields), "out of its turn"
                self.receive_row(said, shared, now)
            whole = batch.low_water is not None
            assert not self.lane.interval_ns or whole != bool(self.answer), "the last has the id"
            self.receive_low_water(batch.low_water)
        if batch.low_water is not None:
            self.remember(batch.low_water)

    def in_step(self, received: list[Said], low_water: int | None) -> bool:
        """Whether this is what all who took in time got."""
        assert self.lane is not None
        complete = low_water == max(self.lane.low_water(), self.cut)
        return complete and received == self.lane.last_flush

    def next_answer(self) -> deque[Said]:
        """The flushes that a member missed (rule delta-6), or a round (rule interval-10)."""
        if self.lane is None or not self.lane.interval_ns:
            return deque()
        is_round = not self.lane_spec.by_slots
        told = newest(self.topic.said, self.fields) if is_round else self.lane.flushed
        missed = [
            said
            for own_key, said in told.items()
            if said.offset > max(self.cut, self.sent_offset(own_key))
        ]
        return deque(sorted(missed, key=lambda said: said.offset))

    def sent_offset(self, own_key: Key) -> int:
        """The offset of a key's last row; 0 if there was none."""
        return self.sent[own_key].offset if own_key in self.sent else 0

    def check_count(self, said: Said, frame: Frame) -> None:
        """Rule delta-6: a row counts the messages since its key's last one, or the cut."""
        own_key = said.key(self.fields)
        since = max(self.cut, self.sent_offset(own_key))
        stood = [m for m in self.topic.after(since) if m.key(self.fields) == own_key]
        stood = [m for m in stood if m.offset <= said.offset]
        count = receipt_of(frame)
        assert (count.messages, count.first) == (len(stood), stood[0].offset)

    def remember(self, offset: int) -> None:
        """A client may come back with this id; it must lose nothing by that."""
        self.check_replica(offset)
        name, epoch = self.topic.name, self.topic.epoch
        self.marks.append(Mark(name, epoch, offset, self.lane_spec, self.replica.copy()))

    def receive_row(self, said: Said, shared: bool, now: int) -> None:
        """A live row: order, truth, rate (rules board-1, interval-2, interval-6, interval-10)."""
        assert self.lane is not None
        assert said.offset > self.cut, "rows at or below the cut never come from the lane"
        own_key = said.key(self.fields)
        last = self.sent.get(own_key)
        assert last is None or said.offset > last.offset, "no repeat, no step back"
        if self.lane.interval_ns:
            if not self.lane_spec.by_slots:
                flushed = shared and self.lane.flushed.get(own_key) is said
                is_newest = newest(self.topic.said, self.fields)[own_key] is said
                assert flushed or is_newest, "the newest at its flush, or when it is taken late"
            if self.fast and own_key in self.sent_at:
                apart_ns = now - self.sent_at[own_key]
                assert apart_ns >= self.lane.interval_ns, "one update per key per interval"
        else:
            assert self.queue.popleft() is said, "every message, in order"
            assert said.offset <= self.lane.position, "not before the flush"
        if self.lane.pace == "batch" and (shared or self.lane_spec.by_slots):
            assert said.offset > self.last_offset, "publication order"
        self.last_offset = said.offset
        self.sent[own_key], self.sent_at[own_key] = said, now
        self.delivered.add(said.offset)
        self.replica.learn(own_key, said.offset)

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
                assert self.sent.get(own_key) is last, "an id promised too much"
        assert not self.queue or self.queue[0].offset > low_water, "an id promised too much"
        self.check_replica(low_water)

    def check_replica(self, position: int) -> None:
        """A replica at a position equals the board there, but for keys that changed since."""
        for own_key, last in newest(self.topic.said, self.fields).items():
            if last.offset <= position:
                held = self.replica.offsets.get(own_key)
                unknown = held is None and last.offset <= self.replica.since
                assert held == last.offset or unknown, f"{own_key}: {held}, not {last.offset}"

    def check_complete(self) -> None:
        """Everything flushed has been taken: rules interval-3, interval-2 and interval-10."""
        if self.lane is None:
            return
        for own_key, said in self.lane.flushed.items():
            missed = said.offset > self.cut and self.sent.get(own_key) is not said
            newer = not self.lane_spec.by_slots and self.sent_offset(own_key) > said.offset
            moved_on = not self.fast and any(m.key(self.fields) == own_key for m in self.queue)
            assert not missed or newer or moved_on, "flushed, but not delivered"
        queued = self.queue and self.queue[0].offset <= self.lane.position
        assert self.lane.interval_ns or not queued, "flushed, but not delivered"

    def check_age(self, now: int) -> None:
        """Nothing is held longer than the interval (`pace=key`: plus a tick)."""
        assert self.lane is not None
        waiting = [said for said in self.since_join if self.waits(said)]
        patience_ns = self.lane.interval_ns + (self.lane.tick_ns if self.lane.pace == "key" else 0)
        for said in waiting:
            assert now < said.at + patience_ns, "held too long"

    def waits(self, said: Said) -> bool:
        """Whether neither the message nor a newer one of its key was delivered."""
        if self.lane is not None and not self.lane.interval_ns:
            return said in self.queue
        last = self.sent.get(said.key(self.fields))
        return last is None or last.offset < said.offset

    def sums(self) -> Sums:
        """Counted one by one: a message is delivered, waits as its key's newest, or conflated."""
        if self.lane is None:
            return Sums()
        matched = self.since_join
        if self.lane.interval_ns:
            waiting = {said for said in newest(matched, self.fields).values() if self.waits(said)}
            waiting.update(self.answer if self.lane_spec.by_slots else ())
        else:
            waiting = set(self.queue)
        conflated = [m for m in matched if m.offset not in self.delivered and m not in waiting]
        return Sums(len(matched), len(self.delivered), len(conflated), len(waiting))


@dataclass(eq=False)
class SessionModel:
    """One subscriber as the model knows it; `owed` are the control outputs still to come."""

    name: str
    fast: bool
    limits: tuple[int, int]
    subscribers: dict[str, SubscriberModel] = field(default_factory=dict)
    owed: deque[Output] = field(default_factory=deque)
    ready: bool = False
    ended: bool = False

    def queues(self) -> list[SubscriberModel]:
        return [f for f in self.subscribers.values() if f.lane and not f.lane.interval_ns]

    def queued(self) -> tuple[int, int]:
        waiting = [said for subscriber in self.queues() for said in subscriber.queue]
        return len(waiting), sum(len(said.payload) for said in waiting)

    def over_limit(self) -> bool:
        messages, size = self.queued()
        return messages > self.limits[0] or size > self.limits[1]


def key_text(key: Key) -> str:
    """A key as it is written, by the standard library."""
    return json.dumps(list(key), separators=(",", ":"))
