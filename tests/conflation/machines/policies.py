"""The state machine of queue policies: small limits, frozen, slow and draining sessions.

After every call: I5, no queue is over its limits; I6, `off` is an unbroken prefix and then the
reason; I17, what was matched is delivered, conflated, dropped or waiting.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.models.expected import expected
from tests.support.models.queues import (
    Farewell,
    Fields,
    QueuedRow,
    Queues,
    Reader,
    TopicQueues,
    written,
)
from tidegate.conflation.definition import Definition, History, Priority, QueuePolicy
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame, Row, receipt_of
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    Goodbye,
    GroupEnd,
    QueueCrossed,
    Rows,
    SessionClosed,
    Unsubscribed,
)
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.spec import KeySpec

PLENTY = 1 << 30
POLICIES = ("off", "conflate", "always", "unsubscribe")
PRIORITIES = (Priority.HIGH, Priority.DEFAULT, Priority.LOW)
LIMITS = ((1, PLENTY), (2, PLENTY), (3, PLENTY), (5, PLENTY), (9, PLENTY), (1_000, 150))
PACES = ("frozen", "slow", "draining")
PICK = st.integers(0, 11)
LETTERS = st.lists(st.integers(0, 11), min_size=1, max_size=4)


class PolicyMachine(RuleBasedStateMachine):
    """A topic of each policy, and three sessions that last, each at its own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(sessions_max=20, subscriptions_max=20)
        self.topics: dict[str, TopicQueues] = {}
        self.sessions: dict[str, Queues] = {}
        self.serial = 0

    @initialize(
        ranks=st.lists(st.integers(0, 2), min_size=4, max_size=4),
        replaces=st.booleans(),
        tidies=st.sets(st.sampled_from(POLICIES)),
        limits=PICK,
        lane_specs=st.lists(st.tuples(PICK, PICK, PICK), min_size=3, max_size=8),
    )
    def begin(
        self,
        ranks: list[int],
        replaces: bool,
        tidies: set[str],
        limits: int,
        lane_specs: list[tuple[int, int, int]],
    ) -> None:
        """Only the topic that conflates keeps places; elsewhere nothing takes another's."""
        for policy, rank in zip(POLICIES, ranks, strict=True):
            topic = TopicQueues(
                policy, policy, rank, replaces and policy == "conflate", policy in tidies
            )
            self.topics[policy] = topic
            self.engine.define_topic(policy, self.definition(topic), "e")
        for number in range(3):
            self.open_session(limits + number, number // 2)
        for session, topic_pick, lane_spec in lane_specs:
            self.subscribe(session, topic_pick, lane_spec)

    @precondition(lambda self: len(self.sessions) < 3)
    @rule(limits=PICK, pace=PICK)
    def open_session(self, limits: int, pace: int) -> None:
        messages_max, bytes_max = LIMITS[limits % len(LIMITS)]
        conflated = limits % 4 != 3
        name = self.fresh("session")
        self.sessions[name] = Queues(name, messages_max, bytes_max, conflated, PACES[pace % 3])
        self.engine.open_session(
            name, QueueLimits(messages_max, bytes_max), lasts=True, conflated=conflated
        )

    @rule(session=PICK, topic=PICK, lane_spec=PICK)
    def subscribe(self, session: int, topic: int, lane_spec: int) -> None:
        """Every message, deltas of it where they come one by one, or an interval."""
        found = self.pick(session)
        chosen = self.topics[POLICIES[topic % 4]]
        if found is None or len(found.readers) >= 5:
            return
        always = chosen.policy == "always" and found.conflated
        delta = lane_spec % 3 == 1 and chosen.policy != "always"
        interval = lane_spec % 4 == 3
        name = self.fresh("sub")
        found.readers[name] = Reader(name, chosen, delta and not interval, interval, always)
        subscription = decide(
            chosen.name,
            self.definition(chosen),
            Options.parse("conflation=100ms" if interval else ""),
            command="sow_and_delta_subscribe" if delta and not interval else "subscribe",
        )
        self.engine.subscribe(found.name, name, subscription, 0)
        if delta and not interval:
            found.readers[name].holds = dict(chosen.records)
            found.readers[name].begun = False
        self.check()

    @rule(bursts=st.lists(st.tuples(PICK, LETTERS), min_size=1, max_size=5), served=st.booleans())
    def traffic(self, bursts: list[tuple[int, list[int]]], served: bool) -> None:
        """Messages of several topics, one call after another."""
        for topic, letters in bursts:
            self.publish(topic, letters)
        if served:
            self.serve()

    def publish(self, topic: int, letters: list[int]) -> None:
        chosen = self.topics[POLICIES[topic % 4]]
        values = [self.value(letter) for letter in letters]
        new = chosen.publish(values)
        for session in self.sessions.values():
            readers = [r for r in session.readers.values() if r.topic is chosen]
            for reader in readers:
                reader.enqueue(new)
            if any(not reader.interval for reader in readers):
                session.look()
        frames = [Frame(row.offset, written(row.value), f'["{row.key}"]') for row in new]
        self.engine.publish(chosen.name, frames, 0)
        self.check()

    @rule()
    def serve(self) -> None:
        """The driver's turn: who drains takes all there is, who is slow a piece of it."""
        self.engine.advance(0)
        for session in list(self.sessions.values()):
            if session.pace == "draining":
                self.drain(session)
            elif session.pace == "slow":
                self.take(session, 60)
        self.check()

    @rule(session=PICK, bytes_max=st.sampled_from((1, 40, 90, 200)))
    def take_a_piece(self, session: int, bytes_max: int) -> None:
        self.engine.advance(0)
        if (found := self.pick(session)) is not None:
            self.take(found, bytes_max)
            self.check()

    @rule(session=PICK, pace=PICK)
    def thaw(self, session: int, pace: int) -> None:
        """A socket takes data again, or no more."""
        if (found := self.pick(session)) is not None:
            found.pace = PACES[pace % 3]

    @rule(session=PICK, reader=PICK)
    def unsubscribe(self, session: int, reader: int) -> None:
        found = self.pick(session)
        if found is None or not found.readers or found.ended:
            return
        leaving = list(found.readers.values())[reader % len(found.readers)]
        found.leave(leaving, "REQUESTED", wanted=True)
        found.note_level()
        self.engine.unsubscribe(found.name, leaving.name)
        self.check()

    @rule(session=PICK, limits=PICK, conflated=st.booleans())
    def tune(self, session: int, limits: int, conflated: bool) -> None:
        """Rule queue-8."""
        found = self.pick(session)
        if found is None or found.ended:
            return
        found.messages_max, found.bytes_max = LIMITS[limits % len(LIMITS)]
        found.conflated = conflated
        for reader in found.readers.values():
            reader.switch(conflated and reader.topic.policy == "always")
        found.look()
        wanted = QueueLimits(found.messages_max, found.bytes_max)
        self.engine.set_session_limits(found.name, wanted, conflated=conflated)
        self.check()

    @rule(session=PICK, unsent=st.sampled_from((0, 0, 30, 90, 120)))
    def note_unsent(self, session: int, unsent: int) -> None:
        """Rule queue-6: it is judged with the next message."""
        found = self.pick(session)
        if found is None or found.ended:
            return
        found.unsent = unsent
        found.note_level()
        self.engine.note_unsent(found.name, unsent)
        self.check(within=False)

    @rule()
    def conflate_idle(self) -> None:
        """Rule queue-11: whichever queue it was, it was the fullest, and it was worth it."""
        before = self.conflated_to()
        done = self.engine.conflate_idle(0)
        touched = [place for place, offset in self.conflated_to().items() if before[place] < offset]
        assert len(touched) == done
        long = [session for session in self.long_sessions() if self.has_raw(session)]
        eligible = {session.name: session.fullness() for session in long}
        for session_name, name in touched:
            session = self.sessions[session_name]
            assert eligible[session_name] == max(eligible.values())
            session.readers[name].conflate()
            session.note_level()
        if not done:
            assert not long
        self.check(within=False)

    def teardown(self) -> None:
        """Everybody drains: nothing is left, and who takes values has the newest of each key."""
        self.engine.advance(0)
        for session in list(self.sessions.values()):
            self.drain(session)
            for reader in session.readers.values():
                assert not reader.rows()
                wanted = reader.topic.records
                assert {k: v for k, v in wanted.items() if k in reader.holds} == reader.holds
        self.check()

    # --- what is seen -----------------------------------------------------------------------------

    def take(self, session: Queues, bytes_max: int) -> bool:
        """One take; whether it brought anything."""
        outputs = self.engine.take(session.name, bytes_max)
        served: list[int] = []
        with expected():
            for output in outputs:
                match output:
                    case Rows():
                        self.receive_rows(session, output, served)
                    case GroupEnd(name=name):
                        session.readers[name].begun = True
                    case Unsubscribed(name=name, reason=reason):
                        self.receive_end(session, ("unsubscribed", name, reason))
                    case Goodbye(reason=why):
                        assert self.next_line(session) == ("goodbye", why.value)
                        assert output is outputs[-1], "nothing follows a goodbye"
                        assert not session.outbox
                        del self.sessions[session.name]
                        return False
        for reader in session.readers.values():
            if reader.rows() and served:
                assert reader.topic.rank >= max(served), "a higher priority waits"
        session.note_level()
        return bool(outputs)

    def receive_rows(self, session: Queues, output: Rows, served: list[int]) -> None:
        line = session.outbox[0] if session.outbox else None
        if isinstance(line, Farewell) and line.reader.name == output.name and line.rows:
            for frame in output.batch.frames:
                self.receive(line.reader, line.rows.pop(0), frame)
            return
        assert not session.outbox, "who comes and goes is told first"
        reader = session.readers[output.name]
        if reader.interval or output.op == "snapshot":
            return
        served.append(reader.topic.rank)
        for frame in output.batch.frames:
            self.receive(reader, reader.next_row(), frame)
        assert (output.batch.low_water is None) == bool(reader.rows()), "an id means all is out"

    def receive(self, reader: Reader, row: QueuedRow, frame: Frame) -> None:
        """The very row, and for deltas one that leads from what is held to what it says."""
        assert (frame.offset, frame.payload) == (row.offset, written(row.value))
        patch = frame.patch if isinstance(frame, Row) else None
        assert patch == row.patch
        if reader.topic.policy != "always":  # there receipts need slots
            assert receipt_of(frame).messages == row.stands
        if row.patch is not None and row.changes is not None:
            assert {**reader.holds[row.key], **row.changes} == row.value, "a delta without its base"
        reader.holds[row.key] = row.value
        reader.received.append(row.offset)
        if reader.topic.policy == "off":
            assert reader.received == list(range(reader.received[0], row.offset + 1)), "unbroken"

    def receive_end(self, session: Queues, told: tuple[str, str, str]) -> None:
        """Who ends at one time does so in the order of the turns that they had."""
        line = self.next_line(session)
        if line != told:
            with expected():
                at = session.outbox.index(told)
            others = [line, *islice(session.outbox, at)]
            assert all(other[0] == told[0] and other[2] == told[2] for other in others)
            session.outbox[at] = line

    def next_line(self, session: Queues) -> Any:
        """The next event, after farewells that are over."""
        while isinstance(line := session.outbox.popleft(), Farewell):
            assert not line.rows, "rows go before the end is told"
        return line

    def drain(self, session: Queues) -> None:
        while session.name in self.sessions and self.take(session, 100):
            pass

    def check(self, *, within: bool = True) -> None:
        """After every call."""
        told: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self.sessions}
        for event in self.engine.announcements():
            match event:
                case QueueCrossed():
                    name = "upper" if event.upper else "lower"
                    told[event.session].append((name, event.messages, event.bytes))
                case SessionClosed() if event.session in told:
                    assert event.reason is not None
                    told[event.session].append(("closed", event.reason.value))
        for session in self.sessions.values():
            assert told[session.name] == session.events
            session.events.clear()
            stats = self.engine.session_stats(session.name)
            rows = list(session.rows())
            figures = (stats.queued_messages, stats.queued_bytes)
            assert figures == (len(rows), sum(row.size for row in rows))
            # Rows of who has left are full values, and judged with the next message.
            if within and not session.unsent and not any(session.farewells()):
                assert figures[0] <= session.messages_max, "I5"
                assert figures[1] <= session.bytes_max, "I5"
            for row in stats.subscriptions:
                with expected():
                    reader = session.readers[row.name]
                assert row.matched == row.delivered + row.conflated + row.waiting, "I17"
                assert row.conflated >= 0
                if not reader.interval:
                    due = (reader.matched, reader.delivered, len(reader.rows()))
                    assert (row.matched, row.delivered, row.waiting) == due
        for topic in self.topics:
            sums = self.engine.topic_stats(topic)
            seen = sums.delivered + sums.conflated + sums.dropped + sums.waiting
            assert sums.matched == seen, "I17"
            assert sum(rows for _, rows in sums.dropped_by) == sums.dropped
            assert min(sums.delivered, sums.conflated, sums.dropped, sums.waiting) >= 0

    # --- small things -----------------------------------------------------------------------------

    def definition(self, topic: TopicQueues) -> Definition:
        return Definition(
            History(1_000),
            KeySpec.of(["/k"]),
            QueuePolicy(topic.policy),
            replaces=topic.replaces,
            tidies=topic.tidies,
            priority=PRIORITIES[topic.rank],
        )

    def value(self, letter: int) -> Fields:
        """Of one of three keys; which field changes differs, and now and then both do."""
        self.serial += 1
        return {"k": "abc"[letter % 3], "v": self.serial, "w": "x" * (letter // 3 * 2)}

    def pick(self, number: int) -> Queues | None:
        """One of the sessions that are there and not on their way out."""
        there = [session for session in self.sessions.values() if not session.ended]
        return there[number % len(there)] if there else None

    def fresh(self, word: str) -> str:
        self.serial += 1
        return f"{word}{self.serial}"

    def conflated_to(self) -> dict[tuple[str, str], int]:
        """How far each queue was given up."""
        return {
            (name, row.name): found.member.conflated_to
            for name in self.sessions
            for row in self.engine.session_stats(name).subscriptions
            if (found := self.engine.session(name).subscribers.get((row.name, row.topic)))
        }

    def long_sessions(self) -> list[Queues]:
        return [one for one in self.sessions.values() if one.conflated and one.above(one.lower)]

    def has_raw(self, session: Queues) -> bool:
        """Whether an eighth or more of a queue that conflates is not put together yet."""
        return any(
            8 * sum(not row.kept for row in reader.queue) >= max(1, len(reader.rows()))
            for reader in session.readers.values()
            if reader.topic.policy == "conflate"
        )
