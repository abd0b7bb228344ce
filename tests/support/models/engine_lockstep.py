"""An engine and its naive model in step: each call goes to both, then all results are compared.

Fast takers are served like sessions with an open socket: whenever the engine announces them they
take everything. Slow ones take what they are told to.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import cast

import pytest

from tests.support.announced import announced_by
from tests.support.models.boards import Message, TopicModel
from tests.support.models.engine_model import (
    LaneModel,
    LaneSpec,
    Mark,
    Replica,
    Sums,
    opening,
)
from tests.support.models.engine_subscriber import SessionModel, SubscriberModel
from tests.support.models.expected import expected
from tidegate.conflation.definition import Definition, History, QueuePolicy
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import EngineError, LimitReached, SessionUnknown
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    CloseReason,
    CohortReady,
    Goodbye,
    Output,
    Rows,
    SessionClosed,
    Unsubscribed,
)
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

PLENTY = 1 << 30
SUBSCRIPTIONS_MAX = 4
SESSIONS_MAX = 4


class EngineLockstep:
    """Both worlds; every assertion that fails here is a rule of docs/semantics broken."""

    def __init__(self) -> None:
        self.engine = Engine(sessions_max=SESSIONS_MAX, subscriptions_max=SUBSCRIPTIONS_MAX)
        self.calls: list[tuple[str, tuple[object, ...], object]] = []
        self.now = 0
        self.serial = 0
        self.topics: dict[str, TopicModel] = {}
        self.lanes: dict[tuple[str, LaneSpec], LaneModel] = {}
        self.sessions: dict[str, SessionModel] = {}
        self.past: dict[str, Sums] = defaultdict(Sums)
        self.marks: list[Mark] = []
        self.closed: list[tuple[str, CloseReason | None]] = []

    # --- the verbs --------------------------------------------------------------------------------

    def open_session(self, fast: bool, limits: tuple[int, int]) -> None:
        name = self.fresh("session")
        if len(self.sessions) == SESSIONS_MAX:
            with pytest.raises(LimitReached):
                self.call("open_session", name, QueueLimits(*limits))
            return
        self.call("open_session", name, QueueLimits(*limits))
        self.sessions[name] = SessionModel(name, fast, limits)
        self.check()

    def drop(self, name: str) -> None:
        for session, subscriber in self.all_subscribers():
            if subscriber.topic is self.topics[name]:
                self.leave(session, subscriber, "REMOVED")
        self.call("drop_topic", name)
        del self.topics[name], self.past[name]

    def publish(self, name: str, payloads: list[bytes]) -> None:
        topic = self.topics[name]
        new = [topic.add(payload, self.now) for payload in payloads]
        frames = [Frame(message.offset, message.payload, message.key) for message in new]
        for (topic_name, _), lane in self.lanes.items():
            if topic_name == name:
                lane.accept(new, self.now)
        self.enqueue(topic, new)
        self.call("publish", name, frames, self.now)
        self.check()

    def unsubscribe(self, session: SessionModel, subscriber: SubscriberModel) -> None:
        self.call("unsubscribe", session.name, subscriber.name)
        self.leave(session, subscriber, "REQUESTED")
        self.check()

    def close(self, session: SessionModel, reason: CloseReason | None) -> None:
        self.call("close_session", session.name, reason)
        if reason is None:
            self.vacate(session)
            earlier = [out.reason for out in session.expected_outputs if isinstance(out, Goodbye)]
            self.closed.append((session.name, earlier[0] if earlier else None))
            del self.sessions[session.name]
        else:
            self.end(session, reason)
        self.check()

    def advance(self, step_ns: int) -> None:
        """As a driver does: every deadline on time."""
        end = self.now + step_ns
        while (deadline := self.model_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.serve()
        self.now = end

    def settle(self) -> None:
        """Publishing stops, time goes on, everybody reads: every replica is the truth."""
        while (deadline := self.model_deadline()) is not None:
            self.now = max(self.now, deadline)
            self.serve()
        for session in list(self.sessions.values()):
            while session.ready and session.name in self.sessions:
                self.take(session, PLENTY)
        self.check()
        for _, subscriber in self.all_subscribers():
            assert not subscriber.script
            assert subscriber.sums().waiting == 0
            subscriber.check_replica(subscriber.topic.head)

    def replay(self) -> None:
        """The same calls once more give the same answers: nothing but the calls counts."""
        again = Engine(sessions_max=SESSIONS_MAX, subscriptions_max=SUBSCRIPTIONS_MAX)
        for verb, arguments, answer in self.calls:
            assert described(perform(again, verb, arguments)) == answer

    # --- the model follows ------------------------------------------------------------------------

    def define(self, name: str, fields: tuple[str, ...], policy: str, kept_max: int) -> None:
        found = self.topics.get(name)
        if found is None:
            found = TopicModel(name, fields, self.fresh("e"), policy, kept_max)
            self.topics[name] = found
        found.policy, found.kept_max = policy, kept_max
        found.trim()
        self.call("define_topic", name, definition_of(found), found.epoch)

    def join(
        self,
        session: SessionModel,
        topic: TopicModel,
        lane_spec: LaneSpec,
        command: str,
        place: tuple[str, int] | None,
        replica: Replica | None,
    ) -> None:
        """Subscribe, or be refused without an effect."""
        name = self.fresh("sub")
        request = decide(
            topic.name,
            definition_of(topic),
            Options.parse(lane_spec.options),
            command=command,
            resume=None if place is None else Bookmark(*place),
            counted=lane_spec.counted,
        )
        full = len(session.subscribers) == SUBSCRIPTIONS_MAX
        if session.ended or full:
            with pytest.raises(SessionUnknown if session.ended else LimitReached):
                self.call("subscribe", session.name, name, request, self.now)
            return
        owed = opening(topic, lane_spec, command, place, session.limits)
        if replica is None:
            replica = Replica(topic.head if place is None else min(place[1], topic.head))
        lane = None if command == "sow" else self.lane(topic, lane_spec)
        session.subscribers[name] = SubscriberModel(
            name, topic, lane, lane_spec, session.fast, replica, owed
        )
        cut = self.call("subscribe", session.name, name, request, self.now)
        assert cut == Bookmark(topic.epoch, topic.head)
        self.check()

    def lane(self, topic: TopicModel, lane_spec: LaneSpec) -> LaneModel:
        """Return the lane of this specification; a new one is idle."""
        fields = topic.key if lane_spec.fields is None else lane_spec.fields
        fresh = LaneModel(topic, fields, lane_spec.interval_ns, lane_spec.pace, topic.head)
        return self.lanes.setdefault((topic.name, lane_spec), fresh)

    def enqueue(self, topic: TopicModel, new: list[Message]) -> None:
        """Queue policies: conflate everything that may be; if that is not enough, close."""
        for session in list(self.sessions.values()):
            lists = [subscriber for subscriber in session.queues() if subscriber.topic is topic]
            for subscriber in lists:
                subscriber.enqueue(new)
            if lists and session.over_limit():
                for subscriber in session.queues():
                    if subscriber.topic.policy == "conflate":
                        subscriber.conflate_queue()
                if session.over_limit():
                    self.end(session, CloseReason.QUEUE_LIMIT)

    def leave(self, session: SessionModel, subscriber: SubscriberModel, reason: str) -> None:
        self.account(subscriber)
        del session.subscribers[subscriber.name]
        self.drop_idle_lanes()
        session.expected_outputs.append(
            Unsubscribed(subscriber.name, subscriber.topic.name, reason)
        )
        if not session.subscribers:
            self.end(session, CloseReason.UNSUBSCRIBED)

    def end(self, session: SessionModel, reason: CloseReason) -> None:
        if session.ended:
            return
        self.vacate(session)
        session.ended = True
        session.expected_outputs.append(Goodbye(reason))
        self.closed.append((session.name, reason))

    def vacate(self, session: SessionModel) -> None:
        for subscriber in session.subscribers.values():
            self.account(subscriber)
        session.subscribers.clear()
        self.drop_idle_lanes()

    def account(self, subscriber: SubscriberModel) -> None:
        """What waited is dropped."""
        last = subscriber.sums()
        last.dropped, last.waiting = last.waiting, 0
        self.past[subscriber.topic.name].add(last)

    def drop_idle_lanes(self) -> None:
        used = {id(subscriber.lane) for _, subscriber in self.all_subscribers()}
        self.lanes = {name: lane for name, lane in self.lanes.items() if id(lane) in used}

    def serve(self) -> None:
        for lane in self.lanes.values():
            lane.advance(self.now)
        self.call("advance", self.now)
        deadline = self.engine.next_deadline()
        assert deadline is None or deadline > self.now, "a deadline that is never served"
        self.check()
        for session, subscriber in self.all_subscribers():
            if session.fast and subscriber.lane is not None:
                subscriber.check_age(self.now)

    # --- what is seen -----------------------------------------------------------------------------

    def take(self, session: SessionModel, bytes_max: int) -> None:
        outputs = self.call("take", session.name, bytes_max)
        assert isinstance(outputs, list)
        assert session.ready or not outputs, "something to take that was never announced"
        session.ready = bool(outputs)
        with expected():
            for output in outputs:
                self.receive(session, output, bytes_max)
        for name, subscriber in list(session.subscribers.items()):
            if subscriber.lane is None and not subscriber.script:
                del session.subscribers[name]
                if not session.subscribers:
                    self.end(session, CloseReason.UNSUBSCRIBED)
        if any(isinstance(output, Goodbye) for output in outputs):
            assert isinstance(outputs[-1], Goodbye), "nothing follows a goodbye"
            del self.sessions[session.name]
            with pytest.raises(SessionUnknown):
                self.call("take", session.name, bytes_max)

    def take_together(self, session: SessionModel) -> bool:
        """Whether it is in a cohort; then all of that have taken."""
        cohort = self.engine.session(session.name).cohort
        if cohort is None:
            return False
        members = {self.sessions[name]: member.name for name, member in cohort.members.items()}
        rows = self.call("take_together", session.name, PLENTY)
        for one, name in members.items():
            if isinstance(rows, Rows):
                with expected():
                    self.receive(one, replace(rows, name=name), PLENTY)
            else:
                one.ready = False
        return True

    def receive(self, session: SessionModel, output: Output, bytes_max: int) -> None:
        if isinstance(output, Unsubscribed | Goodbye):
            session.expected_outputs.remove(output)
            assert not (session.expected_outputs and isinstance(output, Goodbye)), (
                "goodbye comes last"
            )
            return
        subscriber = session.subscribers[output.name]
        subscriber.receive(output, bytes_max, self.now)
        self.marks = [*self.marks, *subscriber.marks][-20:]
        subscriber.marks.clear()

    def check(self) -> None:
        """After every call: events, fast takers, figures, the next deadline."""
        self.receive_events()
        for session in list(self.sessions.values()):
            while session.fast and session.ready and session.name in self.sessions:
                if not self.take_together(session):
                    self.take(session, PLENTY)
                self.receive_events()
            if session.fast and session.name in self.sessions:
                self.call("enter_cohort", session.name, "fast")
        for session, subscriber in self.all_subscribers():
            if session.fast or not session.ready:
                assert not subscriber.script
                subscriber.check_complete()
        self.check_figures()
        assert self.engine.next_deadline() == self.model_deadline()

    def receive_events(self) -> None:
        events = self.call("announcements")
        assert isinstance(events, list)
        closed = [(e.session, e.reason) for e in events if isinstance(e, SessionClosed)]
        assert sorted(closed, key=str) == sorted(self.closed, key=str)
        self.closed.clear()
        for event in events:
            for name in announced_by(event):
                if name in self.sessions:
                    assert not self.sessions[name].ready, "announced twice"
                    self.sessions[name].ready = True

    def check_figures(self) -> None:
        for session in self.sessions.values():
            figures = self.engine.session_stats(session.name)
            assert (figures.queued_messages, figures.queued_bytes) == session.queued()
            assert not session.over_limit()
            for row in figures.subscriptions:
                with expected():
                    seen = session.subscribers[row.name].sums()
                counted = Sums(row.matched, row.delivered, row.conflated, row.waiting)
                assert counted == seen, row
        for name, topic in self.topics.items():
            figures_of_topic = self.engine.topic_stats(name)
            total = Sums(**vars(self.past[name]))
            for _, subscriber in self.all_subscribers():
                if subscriber.topic is topic:
                    total.add(subscriber.sums())
            for count, value in vars(total).items():
                assert getattr(figures_of_topic, count) == value, count

    # --- small things -----------------------------------------------------------------------------

    def call(self, verb: str, *arguments: object) -> object:
        """One call of the engine, written down with its answer."""
        answer = perform(self.engine, verb, arguments)
        self.calls.append((verb, arguments, described(answer)))
        if isinstance(answer, EngineError):
            raise answer
        return answer

    def fresh(self, kind: str) -> str:
        self.serial += 1
        return f"{kind}{self.serial}"

    def all_subscribers(self) -> list[tuple[SessionModel, SubscriberModel]]:
        return [(s, f) for s in self.sessions.values() for f in list(s.subscribers.values())]

    def model_deadline(self) -> int | None:
        deadlines = [lane.deadline() for lane in self.lanes.values()]
        return min((at for at in deadlines if at is not None), default=None)


def definition_of(topic: TopicModel) -> Definition:
    """A topic as the engine is told of it."""
    spec = KeySpec.of(f"/{name}" for name in topic.key)
    return Definition(History(topic.kept_max), spec, QueuePolicy(topic.policy), tidies=True)


def perform(engine: Engine, verb: str, arguments: tuple[object, ...]) -> object:
    """One call; what the engine refuses is an answer too."""
    try:
        if verb == "take_together":
            session, bytes_max = arguments
            cohort = engine.session(str(session)).cohort
            assert cohort is not None
            return engine.take_together(cohort, cast(int, bytes_max))
        return getattr(engine, verb)(*arguments)
    except EngineError as refusal:
        return refusal


def described(answer: object) -> object:
    """An answer as a value that can be compared."""
    if isinstance(answer, EngineError):
        return (type(answer), answer.detail)
    if isinstance(answer, list):
        return [described(item) for item in answer]
    if isinstance(answer, Rows):
        batch = answer.batch
        places = (batch.since, batch.position, batch.low_water)
        return (answer.name, answer.op, batch.frames, places)
    if isinstance(answer, CohortReady):  # a cohort is an object of one engine
        return announced_by(answer)
    if isinstance(answer, Cohort):
        return list(answer.members)
    return answer
