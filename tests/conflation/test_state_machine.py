"""The engine against the naive model, under every order of calls that hypothesis thinks of.

Fast takers are served like sessions with an open socket: whenever the engine announces them they
take everything. Slow ones take small pieces now and then, and much later everything.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from conflation.bookmark import Bookmark
from conflation.definition import Definition, QueuePolicy
from conflation.engine import Engine
from conflation.errors import EngineError, LimitReached, SessionUnknown
from conflation.frame import Frame
from conflation.log import History
from conflation.options import Options
from conflation.outputs import (
    CloseReason,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    Rows,
    SessionClosed,
    SessionReady,
    Unsubscribed,
)
from conflation.session import QueueLimits
from conflation.subscription import decide
from keys.spec import KeySpec
from tests.support.model import (
    MILLISECOND,
    Follower,
    LaneModel,
    LaneWish,
    Mark,
    Replica,
    Sums,
    TopicModel,
    opening,
)
from tests.support.profiles import examples

SECOND = 1_000 * MILLISECOND
PLENTY = 1 << 30
SUBSCRIPTIONS_MAX = 4
SESSIONS_MAX = 4
TOPICS = {"px": ("k", "g"), "log": ()}
KEYED = (
    LaneWish("conflation=none"),
    LaneWish("conflation=100ms", 100 * MILLISECOND),
    LaneWish("conflation=1s", SECOND, tells_first=True),
    LaneWish("conflation=1s,pace=key", SECOND, pace="key", tells_first=True),
    LaneWish("conflation=70ms,pace=key", 70 * MILLISECOND, pace="key"),
    LaneWish("conflation=1s,conflation_key=[/k]", SECOND, ("k",)),
    LaneWish("conflation=100ms,conflation_key=[/c],pace=key", 100 * MILLISECOND, ("c",), "key"),
)
PLAIN = (
    LaneWish("conflation=none"),
    LaneWish("conflation=1s,conflation_key=[/k]", SECOND, ("k",)),
    LaneWish("conflation=70ms,conflation_key=[/c,/k],pace=key", 70 * MILLISECOND, ("c", "k"), "key"),
    LaneWish("conflation=100ms,conflation_key=[/none]", 100 * MILLISECOND, ("none",)),
)
LIMITS = ((3, PLENTY), (6, PLENTY), (1_000, 300), (1_000, PLENTY))
STEPS_NS = (0, MILLISECOND, 3_500_000, 49 * MILLISECOND, 100 * MILLISECOND, 333 * MILLISECOND, SECOND)

PICK = st.integers(0, 11)
LETTERS = st.lists(st.integers(0, 35), min_size=1, max_size=5)


@dataclass(eq=False)
class SessionModel:
    """One consumer as the model knows it; `owed` are the control outputs still to come."""

    name: str
    fast: bool
    limits: tuple[int, int]
    followers: dict[str, Follower] = field(default_factory=dict)
    owed: deque[Output] = field(default_factory=deque)
    ready: bool = False
    ended: bool = False

    def queues(self) -> list[Follower]:
        lists = [f for f in self.followers.values() if f.lane and not f.lane.interval_ns]
        return lists

    def queued(self) -> tuple[int, int]:
        waiting = [said for follower in self.queues() for said in follower.queue]
        return len(waiting), sum(len(said.payload) for said in waiting)

    def over_limit(self) -> bool:
        messages, size = self.queued()
        return messages > self.limits[0] or size > self.limits[1]


class EngineMachine(RuleBasedStateMachine):
    """Each rule makes one call, mirrors it in the model, and compares all that can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(sessions_max=SESSIONS_MAX, subscriptions_max=SUBSCRIPTIONS_MAX)
        self.calls: list[tuple[str, tuple[object, ...], object]] = []
        self.now = 0
        self.serial = 0
        self.topics: dict[str, TopicModel] = {}
        self.lanes: dict[tuple[str, LaneWish], LaneModel] = {}
        self.sessions: dict[str, SessionModel] = {}
        self.past: dict[str, Sums] = defaultdict(Sums)
        self.marks: list[Mark] = []
        self.closed: list[tuple[str, CloseReason | None]] = []

    # --- what happens -----------------------------------------------------------------------------

    @initialize(policies=st.tuples(st.booleans(), st.booleans()), kept_max=st.integers(2, 30))
    def begin(self, policies: tuple[bool, bool], kept_max: int) -> None:
        for (name, fields), conflates in zip(TOPICS.items(), policies, strict=True):
            self.define(name, fields, "conflate" if conflates else "off", kept_max)
        self.open_session(True, 3)

    @rule(fast=st.booleans(), pick=PICK)
    def open_session(self, fast: bool, pick: int) -> None:
        name = self.fresh("session")
        limits = LIMITS[pick % len(LIMITS)]
        if len(self.sessions) == SESSIONS_MAX:
            with pytest.raises(LimitReached):
                self.call("open_session", name, QueueLimits(*limits))
            return
        self.call("open_session", name, QueueLimits(*limits))
        self.sessions[name] = SessionModel(name, fast, limits)
        self.check()

    @rule(plain=st.booleans(), letters=LETTERS, late=st.sampled_from((0, 0, 0, *STEPS_NS)))
    def publish(self, plain: bool, letters: list[int], late: int) -> None:
        """A driver that is late publishes before it serves what has fallen due."""
        self.now += late
        topic = self.topics["log" if plain else "px"]
        payloads = [self.payload(letter) for letter in letters]
        new = topic.publish(payloads, self.now)
        frames = [
            Frame(said.offset, said.payload, key_text(said.key(topic.key)) if topic.key else "")
            for said in new
        ]
        for (name, _), lane in self.lanes.items():
            if name == topic.name:
                lane.accept(new, self.now)
        self.enqueue(topic, new)
        self.call("publish", topic.name, frames, self.now)
        self.check()

    @rule(session=PICK, plain=st.booleans(), wish=PICK, command=PICK)
    def subscribe(self, session: int, plain: bool, wish: int, command: int) -> None:
        topic = self.topics["log" if plain else "px"]
        table = KEYED if topic.key else PLAIN
        commands = ("subscribe", "sow_and_subscribe", "sow") if topic.key else ("subscribe",)
        chosen = commands[command % len(commands)]
        self.join(session, topic, table[wish % len(table)], chosen, None, None)

    @precondition(lambda self: self.marks)
    @rule(session=PICK, mark=st.integers(0, 40))
    def resume(self, session: int, mark: int) -> None:
        """A client comes back with the last id that it saw, and what it held then."""
        seen = self.marks[mark % len(self.marks)]
        place = (seen.epoch, seen.offset)
        topic = self.topics[seen.topic]
        self.join(session, topic, seen.wish, "subscribe", place, seen.replica.copy())

    @rule(session=PICK, plain=st.booleans(), wish=PICK, offset=st.integers(0, 40), ours=PICK)
    def resume_anywhere(self, session: int, plain: bool, wish: int, offset: int, ours: int) -> None:
        """A client comes with a bookmark of which it holds nothing, real or made up."""
        topic = self.topics["log" if plain else "px"]
        table = KEYED if topic.key else PLAIN
        place = (topic.epoch if ours else "strange", offset)
        self.join(session, topic, table[wish % len(table)], "subscribe", place, None)

    @precondition(lambda self: self.all_followers())
    @rule(pick=PICK)
    def unsubscribe(self, pick: int) -> None:
        found = self.all_followers()
        session, follower = found[pick % len(found)]
        self.call("unsubscribe", session.name, follower.name)
        self.leave(session, follower, "REQUESTED")
        self.check()

    @precondition(lambda self: self.sessions)
    @rule(pick=PICK, reason=st.sampled_from((None, CloseReason.SHUTDOWN)), rarely=PICK)
    def close(self, pick: int, reason: CloseReason | None, rarely: int) -> None:
        if rarely > 2:
            return
        session = list(self.sessions.values())[pick % len(self.sessions)]
        self.call("close_session", session.name, reason)
        ended = session.ended
        if reason is None:
            self.vacate(session)
            earlier = [out.reason for out in session.owed if isinstance(out, Goodbye)]
            self.closed.append((session.name, earlier[0] if earlier else None))
            del self.sessions[session.name]
        elif not ended:
            self.end(session, reason)
        self.check()

    @rule(plain=st.booleans(), conflates=st.booleans(), kept_max=st.integers(1, 30), drop=PICK)
    def redefine(self, plain: bool, conflates: bool, kept_max: int, drop: int) -> None:
        """A new policy and history; now and then the topic goes first and comes back empty."""
        name = "log" if plain else "px"
        if drop == 0:
            for session, follower in self.all_followers():
                if follower.topic is self.topics[name]:
                    self.leave(session, follower, "REMOVED")
            self.call("drop_topic", name)
            del self.topics[name], self.past[name]
        self.define(name, TOPICS[name], "conflate" if conflates else "off", kept_max)
        self.check()

    @rule(step_ns=st.sampled_from(STEPS_NS))
    def advance(self, step_ns: int) -> None:
        self.now += step_ns
        self.serve()

    @precondition(lambda self: self.model_deadline() is not None)
    @rule(early_ns=st.sampled_from((0, 0, 1)))
    def advance_to_deadline(self, early_ns: int) -> None:
        deadline = self.model_deadline()
        assert deadline is not None
        self.now = max(self.now, deadline - early_ns)
        self.serve()

    @precondition(lambda self: self.sessions)
    @rule(pick=PICK, bytes_max=st.sampled_from((1, 60, 150, 400, PLENTY)))
    def take_a_piece(self, pick: int, bytes_max: int) -> None:
        self.take(list(self.sessions.values())[pick % len(self.sessions)], bytes_max)
        self.check()

    @rule()
    def settle(self) -> None:
        """Publishing stops, time goes on, everybody reads: every replica is the truth."""
        while (deadline := self.model_deadline()) is not None:
            self.now = max(self.now, deadline)
            self.serve()
        for session in list(self.sessions.values()):
            while session.ready and session.name in self.sessions:
                self.take(session, PLENTY)
        self.check()
        for _, follower in self.all_followers():
            assert not follower.script
            assert follower.sums().waiting == 0
            follower.check_replica(follower.topic.head)

    def teardown(self) -> None:
        """The same calls once more give the same answers: nothing but the calls counts."""
        self.settle()
        again = Engine(sessions_max=SESSIONS_MAX, subscriptions_max=SUBSCRIPTIONS_MAX)
        for verb, arguments, answer in self.calls:
            assert described(perform(again, verb, arguments)) == answer

    # --- the model follows ------------------------------------------------------------------------

    def define(self, name: str, fields: tuple[str, ...], policy: str, kept_max: int) -> None:
        found = self.topics.get(name)
        if found is None:
            found = TopicModel(name, fields, policy, self.fresh("e"), kept_max)
            self.topics[name] = found
        found.policy, found.kept_max = policy, kept_max
        found.trim()
        spec = KeySpec.of(f"/{name}" for name in fields)
        definition = Definition(History(kept_max), spec, QueuePolicy(policy))
        self.call("define_topic", name, definition, found.epoch)

    def join(
        self,
        session_pick: int,
        topic: TopicModel,
        wish: LaneWish,
        command: str,
        place: tuple[str, int] | None,
        replica: Replica | None,
    ) -> None:
        """Subscribe, or be refused without an effect."""
        if not self.sessions:
            return
        session = list(self.sessions.values())[session_pick % len(self.sessions)]
        name = self.fresh("sub")
        request = decide(
            topic.name,
            KeySpec.of(f"/{field}" for field in topic.key),
            Options.parse(wish.options),
            command=command,
            resume=None if place is None else Bookmark(*place),
            tells_first=wish.tells_first,
        )
        full = len(session.followers) == SUBSCRIPTIONS_MAX
        if session.ended or full:
            with pytest.raises(SessionUnknown if session.ended else LimitReached):
                self.call("subscribe", session.name, name, request)
            return
        owed = opening(topic, wish, command, place, session.limits)
        if replica is None:
            replica = Replica(topic.head if place is None else min(place[1], topic.head))
        lane = None if command == "sow" else self.lane(topic, wish)
        session.followers[name] = Follower(name, topic, lane, wish, session.fast, replica, owed)
        cut = self.call("subscribe", session.name, name, request)
        assert cut == Bookmark(topic.epoch, topic.head)
        self.check()

    def lane(self, topic: TopicModel, wish: LaneWish) -> LaneModel:
        """The lane that this wish shares, made idle if nobody is in it."""
        fields = topic.key if wish.fields is None else wish.fields
        fresh = LaneModel(topic, fields, wish.interval_ns, wish.pace, wish.tells_first, topic.head)
        return self.lanes.setdefault((topic.name, wish), fresh)

    def enqueue(self, topic: TopicModel, new: list[object]) -> None:
        """Queue policies: conflate everything that may be; if that is not enough, close."""
        for session in list(self.sessions.values()):
            lists = [follower for follower in session.queues() if follower.topic is topic]
            for follower in lists:
                follower.enqueue(new)  # type: ignore[arg-type]
            if lists and session.over_limit():
                for follower in session.queues():
                    if follower.topic.policy == "conflate":
                        follower.give_up()
                if session.over_limit():
                    self.end(session, CloseReason.QUEUE_LIMIT)

    def leave(self, session: SessionModel, follower: Follower, reason: str) -> None:
        self.account(follower)
        del session.followers[follower.name]
        self.drop_idle_lanes()
        session.owed.append(Unsubscribed(follower.name, follower.topic.name, reason))
        if not session.followers:
            self.end(session, CloseReason.UNSUBSCRIBED)

    def end(self, session: SessionModel, reason: CloseReason) -> None:
        if session.ended:
            return
        self.vacate(session)
        session.ended = True
        session.owed.append(Goodbye(reason))
        self.closed.append((session.name, reason))

    def vacate(self, session: SessionModel) -> None:
        for follower in session.followers.values():
            self.account(follower)
        session.followers.clear()
        self.drop_idle_lanes()

    def account(self, follower: Follower) -> None:
        """What waited is dropped."""
        last = follower.sums()
        last.dropped, last.waiting = last.waiting, 0
        self.past[follower.topic.name].add(last)

    def drop_idle_lanes(self) -> None:
        used = {id(follower.lane) for _, follower in self.all_followers()}
        self.lanes = {name: lane for name, lane in self.lanes.items() if id(lane) in used}

    def serve(self) -> None:
        for lane in self.lanes.values():
            lane.advance(self.now)
        self.call("advance", self.now)
        deadline = self.engine.next_deadline()
        assert deadline is None or deadline > self.now, "a deadline that is never served"
        self.check()
        for session, follower in self.all_followers():
            if session.fast and follower.lane is not None:
                follower.check_age(self.now)

    # --- what is seen -----------------------------------------------------------------------------

    def take(self, session: SessionModel, bytes_max: int) -> None:
        outputs = self.call("take", session.name, bytes_max)
        assert isinstance(outputs, list)
        assert session.ready or not outputs, "something to take that was never announced"
        session.ready = bool(outputs)
        for output in outputs:
            self.hear(session, output, bytes_max)
        for name, follower in list(session.followers.items()):
            if follower.lane is None and not follower.script:
                del session.followers[name]
                if not session.followers:
                    self.end(session, CloseReason.UNSUBSCRIBED)
        if any(isinstance(output, Goodbye) for output in outputs):
            assert isinstance(outputs[-1], Goodbye), "nothing follows a goodbye"
            del self.sessions[session.name]
            with pytest.raises(SessionUnknown):
                self.call("take", session.name, bytes_max)

    def hear(self, session: SessionModel, output: Output, bytes_max: int) -> None:
        if isinstance(output, Unsubscribed | Goodbye):
            assert session.owed.popleft() == output
            return
        follower = session.followers[output.name]
        match output:
            case Resumed(mode=mode, gap_messages=gap):
                assert follower.script.popleft() == ("resumed", mode.value, gap)
            case GroupBegin(rows=rows):
                assert follower.script.popleft() == ("begin", rows)
                by_record = set(follower.fields) <= set(follower.topic.key)
                follower.replica = Replica(0 if by_record else follower.cut)
            case GroupEnd(bookmark=bookmark):
                assert follower.script.popleft() == ("end", bookmark)
                self.remember(follower, follower.cut)
            case Rows():
                self.hear_rows(follower, output, bytes_max)

    def hear_rows(self, follower: Follower, output: Rows, bytes_max: int) -> None:
        batch, topic = output.batch, follower.topic
        assert (output.topic, output.epoch) == (topic.name, topic.epoch)
        assert batch.frames, "an empty flush sends nothing"
        assert batch.payload_bytes <= bytes_max or len(batch.frames) == 1
        heard = [topic.said[frame.offset - 1] for frame in batch.frames]
        for said, frame in zip(heard, batch.frames, strict=True):
            fields = topic.key or (follower.fields if follower.wish.interval_ns else ())
            assert frame.payload == said.payload
            assert frame.key == (key_text(said.key(fields)) if fields else "")
        if follower.script:
            for said in heard:
                assert follower.script.popleft() == (output.op, said)
                follower.replica.offsets[said.key(follower.fields)] = said.offset
            last = not follower.script
            assert batch.low_water == (follower.cut if last else None)
        else:
            assert output.op == "publish"
            assert follower.lane is not None
            shared = heard == follower.lane.last_flush
            for said, first in zip(heard, batch.firsts, strict=True):
                follower.hear_row(said, shared, self.now)
                told = follower.lane.firsts[said.key(follower.fields)]
                assert first == (told if follower.wish.tells_first else said.offset)
            follower.hear_low_water(batch.low_water)
        if batch.low_water is not None:
            self.remember(follower, batch.low_water)

    def remember(self, follower: Follower, offset: int) -> None:
        """A client may come back with this id; it must lose nothing by that."""
        follower.check_replica(offset)
        topic = follower.topic
        mark = Mark(topic.name, topic.epoch, offset, follower.wish, follower.replica.copy())
        self.marks = [*self.marks[-20:], mark]

    def check(self) -> None:
        """After every call: events, fast takers, figures, the next deadline."""
        self.hear_events()
        for session in list(self.sessions.values()):
            while session.fast and session.ready and session.name in self.sessions:
                self.take(session, PLENTY)
                self.hear_events()
        for session, follower in self.all_followers():
            if session.fast or not session.ready:
                assert not follower.script
                follower.check_complete()
        self.check_figures()
        assert self.engine.next_deadline() == self.model_deadline()

    def hear_events(self) -> None:
        events = self.call("events")
        assert isinstance(events, list)
        closed = [(e.session, e.reason) for e in events if isinstance(e, SessionClosed)]
        assert sorted(closed) == sorted(self.closed, key=str)
        self.closed.clear()
        for event in events:
            if isinstance(event, SessionReady) and event.session in self.sessions:
                assert not self.sessions[event.session].ready, "announced twice"
                self.sessions[event.session].ready = True

    def check_figures(self) -> None:
        for session in self.sessions.values():
            figures = self.engine.session_stats(session.name)
            assert (figures.queued_messages, figures.queued_bytes) == session.queued()
            assert not session.over_limit()
            for row in figures.subscriptions:
                seen = session.followers[row.name].sums()
                counted = Sums(row.matched, row.delivered, row.conflated, row.waiting)
                assert counted == seen, row
        for name, topic in self.topics.items():
            figures_of_topic = self.engine.topic_stats(name)
            total = Sums(**vars(self.past[name]))
            for _, follower in self.all_followers():
                if follower.topic is topic:
                    total.add(follower.sums())
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

    def payload(self, letter: int) -> bytes:
        """A message of one of few keys; some are longer than others."""
        self.serial += 1
        fields = {"k": "abc"[letter % 3], "g": "XY"[letter // 3 % 2], "v": self.serial}
        if letter // 6 % 3:
            fields["c"] = letter // 6 % 3
        return json.dumps({**fields, "p": "x" * (letter // 18 * 60)}).encode()

    def all_followers(self) -> list[tuple[SessionModel, Follower]]:
        return [(s, f) for s in self.sessions.values() for f in list(s.followers.values())]

    def model_deadline(self) -> int | None:
        deadlines = [lane.deadline() for lane in self.lanes.values()]
        return min((at for at in deadlines if at is not None), default=None)


def key_text(key: tuple[object, ...]) -> str:
    """A key as it is written, by the standard library."""
    return json.dumps(list(key), separators=(",", ":"))


def perform(engine: Engine, verb: str, arguments: tuple[object, ...]) -> object:
    """One call; what the engine refuses is an answer too."""
    try:
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
        places = (batch.since, batch.position, batch.low_water, list(batch.firsts))
        return (answer.name, answer.op, batch.frames, places)
    return answer


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = examples(100, nightly=20_000, steps=40)
