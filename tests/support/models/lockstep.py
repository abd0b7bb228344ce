"""An engine and the naive model in step, for the whole language: verbs, and what all must hold.

Fast takers are served like sessions with an open socket: whenever the engine announces them they
take everything. Slow ones take what they are told to.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.support.announced import announced_by
from tests.support.models.boards import MILLISECOND, Event, Focus, TopicModel
from tests.support.models.expected import expected
from tests.support.models.lane_spec import LaneSpec, spec
from tests.support.models.replica import ScriptLine
from tests.support.models.subscriber import SubscriberModel
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.outputs import Output, RecordsExpired, Rows
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Command, Replay, Subscription
from tidegate.keys.text.bookmark import Bookmark

PLENTY = 1 << 30
SECOND = 1_000 * MILLISECOND


class Lockstep:
    """Both worlds; every assertion that fails here is a rule of docs/semantics broken."""

    def __init__(self) -> None:
        self.engine = Engine(sessions_max=100, subscriptions_max=4)
        self.now = 0
        self.topics: dict[str, TopicModel] = {}
        self.subscribers: dict[str, SubscriberModel] = {}
        self.ready: set[str] = set()
        self.expired: list[RecordsExpired] = []

    def define(self, name: str, key: tuple[str, ...], **more: Any) -> TopicModel:
        """A topic with a long journal."""
        topic = self.topics[name] = TopicModel(name, key, "e")
        definition = Definition(History(topic.kept_max), spec(key), **more)
        self.engine.define_topic(name, definition, topic.epoch)
        return topic

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, topic: TopicModel, *payloads: bytes, exempt: bool = False) -> None:
        """Messages in one call."""
        new = [topic.add(payload, self.now, exempt=exempt) for payload in payloads]
        stamp = self.now // MILLISECOND
        frames = [Frame(m.offset, m.payload, m.key, stamp, m.exempt) for m in new]
        self.engine.publish(topic.name, frames, self.now)
        self.look()

    def remove(
        self, topic: TopicModel, *keys: str, reason: RemovalReason = RemovalReason.DELETED
    ) -> None:
        """Records go; one that is not there takes an offset as well."""
        new = [topic.remove(own, self.now, reason.value) for own in keys]
        stamp = self.now // MILLISECOND
        frames = [Tombstone(m.offset, b"", m.key, stamp, reason=reason) for m in new]
        self.engine.publish(topic.name, frames, self.now)
        self.look()

    # --- subscribing ------------------------------------------------------------------------------

    def join(
        self,
        topic: TopicModel,
        lane_spec: LaneSpec,
        *,
        fast: bool,
        snapshot: bool,
        batch_size: int = 100,
        paused: bool = False,
    ) -> SubscriberModel:
        """A session of one subscription."""
        subscriber = self.enter(topic, lane_spec, fast=fast, snapshot=snapshot)
        if snapshot:
            subscriber.script.extend(snapshot_script(topic, lane_spec))
        subscriber.paused = paused
        self.subscribe(subscriber, batch_size=batch_size)
        return subscriber

    def enter(
        self, topic: TopicModel, lane_spec: LaneSpec, *, fast: bool, snapshot: bool
    ) -> SubscriberModel:
        """A subscriber with a session of its own that has not subscribed yet."""
        session = f"s{len(self.subscribers) + 1}.{self.engine.stats().sessions}.{topic.head}"
        while session in self.subscribers:
            session += "'"
        self.engine.open_session(session, QueueLimits(100_000, PLENTY))
        subscriber = SubscriberModel(
            session, "sub", topic, lane_spec, fast, snapshot, self.now, topic.head
        )
        for other in self.subscribers.values():
            other.others_cuts.append(topic.head)
        self.subscribers[session] = subscriber
        return subscriber

    def subscribe(
        self,
        subscriber: SubscriberModel,
        *,
        batch_size: int = 100,
        resume: Bookmark | None = None,
        replay: Replay | None = None,
    ) -> None:
        """The call itself; the cut is the topic's head."""
        lane_spec = self.request(subscriber, subscriber.lane_spec, batch_size, resume, replay)
        cut = self.engine.subscribe(subscriber.session, subscriber.name, lane_spec, self.now)
        assert cut == Bookmark(subscriber.topic.epoch, subscriber.topic.head)
        self.look()

    def request(
        self,
        subscriber: SubscriberModel,
        lane_spec: LaneSpec,
        batch_size: int = 100,
        resume: Bookmark | None = None,
        replay: Replay | None = None,
    ) -> Subscription:
        """What a subscriber asks for now."""
        return Subscription(
            subscriber.topic.name,
            Command.SOW_AND_SUBSCRIBE if subscriber.snapshot else Command.SUBSCRIBE,
            lane_spec.lane_id(subscriber.topic.key),
            batch_size=batch_size,
            resume=resume,
            replay=replay,
            paused=subscriber.paused,
        )

    def change(self, subscriber: SubscriberModel, lane_spec: LaneSpec) -> None:
        """Another lane, of the same board or of another."""
        if lane_spec.focus == subscriber.lane_spec.focus:
            subscriber.ask_lane(lane_spec, self.now)
        else:
            subscriber.change_focus(lane_spec, self.now)
        self.tell_change(subscriber)

    def pause(self, subscriber: SubscriberModel) -> None:
        """Or go on."""
        subscriber.paused = not subscriber.paused
        subscriber.lagging = subscriber.was_behind = True
        self.tell_change(subscriber)

    def tell_change(self, subscriber: SubscriberModel) -> None:
        """The call itself."""
        request = self.request(subscriber, subscriber.wanted or subscriber.lane_spec)
        self.engine.change(subscriber.session, subscriber.name, request, self.now)
        self.look()

    def leave(self, subscriber: SubscriberModel) -> None:
        """The peer is gone."""
        self.engine.close_session(subscriber.session)
        del self.subscribers[subscriber.session]
        self.ready.discard(subscriber.session)
        self.look()

    # --- time -------------------------------------------------------------------------------------

    def advance(self, step_ns: int) -> None:
        """As a driver does: every deadline on time."""
        end = self.now + step_ns
        self.serve()
        while (deadline := self.engine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.serve()
        self.now = end

    def serve(self) -> None:
        """One call of `advance`; then nothing is held that should have gone."""
        self.engine.advance(self.now)
        deadline = self.engine.next_deadline()
        assert deadline is None or deadline > self.now, "a deadline that is never served"
        self.look()
        for subscriber in self.subscribers.values():
            if subscriber.at_once and not subscriber.paused and not subscriber.script:
                subscriber.check_patience(self.now)

    def settle(self) -> None:
        """Publishing stops, time goes on, everybody reads: every client has its board."""
        while (deadline := self.engine.next_deadline()) is not None:
            self.now = max(self.now, deadline)
            self.serve()
        for subscriber in self.subscribers.values():
            if subscriber.paused:
                self.pause(subscriber)
        for subscriber in self.subscribers.values():
            self.take(subscriber, PLENTY)
            (row,) = self.engine.session_stats(subscriber.session).subscriptions
            subscriber.check_settled(row)

    # --- what is seen -----------------------------------------------------------------------------

    def look(self) -> None:
        """After every call: events, fast takers, figures."""
        self.receive_events()
        for subscriber in list(self.subscribers.values()):
            if subscriber.fast and subscriber.session in self.ready:
                self.take(subscriber, PLENTY)
        self.receive_events()
        for subscriber in self.subscribers.values():
            (row,) = self.engine.session_stats(subscriber.session).subscriptions
            subscriber.see_lane(row.lane, self.now)
            subscriber.check_figures(row)

    def take(self, subscriber: SubscriberModel, bytes_max: int) -> None:
        """Everything, in pieces."""
        while self.take_once(subscriber, bytes_max):
            pass

    def take_once(self, subscriber: SubscriberModel, bytes_max: int) -> list[Output]:
        """One piece."""
        outputs = self.engine.take(subscriber.session, bytes_max)
        assert subscriber.session in self.ready or not outputs, "never announced"
        assert not (subscriber.paused and any(isinstance(out, Rows) for out in outputs)), "paused"
        with expected():
            for output in outputs:
                subscriber.receive(output, bytes_max, self.now)
        if subscriber.replay is not None:
            self.go_on(subscriber)
        if not outputs:
            self.ready.discard(subscriber.session)
            (row,) = self.engine.session_stats(subscriber.session).subscriptions
            subscriber.drained(row)
        return outputs

    def go_on(self, subscriber: SubscriberModel) -> None:
        """A replay whose rows are out takes what came meanwhile, and at the head goes live."""
        if not subscriber.script and subscriber.cut == subscriber.topic.head:
            subscriber.replay, subscriber.joined_at = None, self.now
            subscriber.told.clear()
        elif not subscriber.script:
            journal = subscriber.topic.events(subscriber.lane_spec.focus, subscriber.cut)
            subscriber.script.extend(journal_script(subscriber.lane_spec, journal))
            subscriber.cut = subscriber.topic.head

    def receive_events(self) -> None:
        """Announcements, and what has expired."""
        for event in self.engine.announcements():
            for session in announced_by(event):
                assert session not in self.ready, "announced twice"
                if session in self.subscribers:
                    self.ready.add(session)
            if isinstance(event, RecordsExpired):
                self.expired.append(event)


def snapshot_script(topic: TopicModel, lane_spec: LaneSpec) -> list[ScriptLine]:
    """The state at the cut, oldest row first, a window in its order (rule resume-1)."""
    focus = lane_spec.focus
    whole = focus
    if not focus.derived and focus.fields is not None:
        whole = Focus(focus.filter_text, focus.matches)
    live = topic.live(whole, topic.head)
    last: dict[str, Event] = {e.key: e for e in topic.events(whole)}
    rows = [(own, last[own].offset, value) for own, (_, value) in live.items()]
    if focus.top:
        rows.sort(key=lambda row: (focus.rank(row[2]), row[0]))
    else:
        rows.sort(key=lambda row: row[1])
    lines: list[ScriptLine] = [("begin", len(rows))]
    lines += [("snapshot", own, offset, lane_spec.shown(value)) for own, offset, value in rows]
    return [*lines, ("end", f"{topic.epoch}-{topic.head}")]


def journal_script(lane_spec: LaneSpec, events: list[Event]) -> list[ScriptLine]:
    """Messages of the journal as a replay tells them."""
    puts = [event for event in events if not event.gone]
    rows = recorded(puts, lane_spec) if lane_spec.interval_ms else puts
    return [script_line(lane_spec, event) for event in rows]


def recorded(puts: list[Event], lane_spec: LaneSpec) -> list[Event]:
    """An interval on the messages' own timeline (rule interval-4)."""
    rows: list[Event] = []
    held: dict[str, Event] = {}
    end = -1
    for event in puts:
        at = event.at // MILLISECOND * MILLISECOND
        if held and at >= end:
            rows += sorted(held.values(), key=lambda event: event.offset)
            held.clear()
        if not held:
            end = at + lane_spec.interval_ns
        older = held.pop(event.key, None)
        if older is not None and older.exempt:
            held[f"{older.offset}"] = older
        held[event.key] = event
    return rows + sorted(held.values(), key=lambda event: event.offset)


def script_line(lane_spec: LaneSpec, event: Event) -> ScriptLine:
    """An event as an opening tells it."""
    if event.gone:
        return ("oof", event.key)
    return ("publish", event.key, event.offset, lane_spec.shown(event.value))


def script(lines: list[ScriptLine]) -> deque[ScriptLine]:
    """What must be received, in this order."""
    return deque(lines)
