"""An engine and the naive model in step, for the whole language: verbs, and what all must hold.

Fast takers are served like sessions with an open socket: whenever the engine announces them they
take everything. Slow ones take what they are told to.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.support.models.boards import MILLISECOND, Chronicle, Event, Focus
from tests.support.models.lane_spec import Wish, spec
from tests.support.models.replica import ScriptLine
from tests.support.models.subscriber import Consumer
from tidegate.conflation.definition import Definition
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.journal import History
from tidegate.conflation.outputs import Output, RecordsExpired, Rows, SessionReady
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Command, Replay, Subscription
from tidegate.keys.text.bookmark import Bookmark

PLENTY = 1 << 30
SECOND = 1_000 * MILLISECOND


class Stage:
    """Both worlds; every assertion that fails here is a rule of docs/semantics broken."""

    def __init__(self) -> None:
        self.engine = Engine(sessions_max=100, subscriptions_max=4)
        self.now = 0
        self.topics: dict[str, Chronicle] = {}
        self.consumers: dict[str, Consumer] = {}
        self.ready: set[str] = set()
        self.expired: list[RecordsExpired] = []

    def define(self, name: str, key: tuple[str, ...], **more: Any) -> Chronicle:
        """A topic with a long journal."""
        definition = Definition(History(10_000), spec(key), **more)
        self.engine.define_topic(name, definition, "e")
        self.topics[name] = Chronicle(name, key, "e")
        return self.topics[name]

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, topic: Chronicle, *payloads: bytes, exempt: bool = False) -> None:
        """Messages in one call."""
        new = [topic.add(payload, self.now, exempt=exempt) for payload in payloads]
        stamp = self.now // MILLISECOND
        frames = [Frame(m.offset, m.payload, m.key, stamp, m.exempt) for m in new]
        self.engine.publish(topic.name, frames, self.now)
        self.look()

    def remove(
        self, topic: Chronicle, *keys: str, reason: RemovalReason = RemovalReason.DELETED
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
        topic: Chronicle,
        wish: Wish,
        *,
        fast: bool,
        snapshot: bool,
        batch_size: int = 100,
        paused: bool = False,
    ) -> Consumer:
        """A session of one subscription."""
        consumer = self.enter(topic, wish, fast=fast, snapshot=snapshot)
        if snapshot:
            consumer.script.extend(snapshot_script(topic, wish))
        consumer.paused = paused
        self.subscribe(consumer, batch_size=batch_size)
        return consumer

    def enter(self, topic: Chronicle, wish: Wish, *, fast: bool, snapshot: bool) -> Consumer:
        """A consumer with a session of its own that has not subscribed yet."""
        session = f"s{len(self.consumers) + 1}.{self.engine.stats().sessions}.{topic.head}"
        while session in self.consumers:
            session += "'"
        self.engine.open_session(session, QueueLimits(100_000, PLENTY))
        consumer = Consumer(session, "sub", topic, wish, fast, snapshot, self.now, topic.head)
        for other in self.consumers.values():
            other.others_cuts.append(topic.head)
        self.consumers[session] = consumer
        return consumer

    def subscribe(
        self,
        consumer: Consumer,
        *,
        batch_size: int = 100,
        resume: Bookmark | None = None,
        replay: Replay | None = None,
    ) -> None:
        """The call itself; the cut is the topic's head."""
        wish = self.request(consumer, consumer.wish, batch_size, resume, replay)
        cut = self.engine.subscribe(consumer.session, consumer.name, wish, self.now)
        assert cut == Bookmark(consumer.chronicle.epoch, consumer.chronicle.head)
        self.look()

    def request(
        self,
        consumer: Consumer,
        wish: Wish,
        batch_size: int = 100,
        resume: Bookmark | None = None,
        replay: Replay | None = None,
    ) -> Subscription:
        """What a consumer asks for now."""
        return Subscription(
            consumer.chronicle.name,
            Command.SOW_AND_SUBSCRIBE if consumer.snapshot else Command.SUBSCRIBE,
            wish.lane_id(consumer.chronicle.key),
            batch_size=batch_size,
            resume=resume,
            replay=replay,
            paused=consumer.paused,
        )

    def change(self, consumer: Consumer, wish: Wish) -> None:
        """Another lane, of the same board or of another."""
        if wish.focus == consumer.wish.focus:
            consumer.ask_lane(wish, self.now)
        else:
            consumer.change_focus(wish, self.now)
        self.tell_change(consumer)

    def pause(self, consumer: Consumer) -> None:
        """Or go on."""
        consumer.paused = not consumer.paused
        consumer.lagging = consumer.was_behind = True
        self.tell_change(consumer)

    def tell_change(self, consumer: Consumer) -> None:
        """The call itself."""
        request = self.request(consumer, consumer.wanted or consumer.wish)
        self.engine.change(consumer.session, consumer.name, request, self.now)
        self.look()

    def leave(self, consumer: Consumer) -> None:
        """The peer is gone."""
        self.engine.close_session(consumer.session)
        del self.consumers[consumer.session]
        self.ready.discard(consumer.session)
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
        for consumer in self.consumers.values():
            if consumer.at_once and not consumer.paused and not consumer.script:
                consumer.check_patience(self.now)

    def settle(self) -> None:
        """Publishing stops, time goes on, everybody reads: every client has its board."""
        while (deadline := self.engine.next_deadline()) is not None:
            self.now = max(self.now, deadline)
            self.serve()
        for consumer in self.consumers.values():
            if consumer.paused:
                self.pause(consumer)
        for consumer in self.consumers.values():
            self.take(consumer, PLENTY)
            (row,) = self.engine.session_stats(consumer.session).subscriptions
            consumer.check_settled(row)

    # --- what is seen -----------------------------------------------------------------------------

    def look(self) -> None:
        """After every call: events, fast takers, figures."""
        self.hear_events()
        for consumer in list(self.consumers.values()):
            if consumer.fast and consumer.session in self.ready:
                self.take(consumer, PLENTY)
        self.hear_events()
        for consumer in self.consumers.values():
            (row,) = self.engine.session_stats(consumer.session).subscriptions
            consumer.see_lane(row.lane, self.now)
            consumer.check_figures(row)

    def take(self, consumer: Consumer, bytes_max: int) -> None:
        """Everything, in pieces."""
        while self.take_once(consumer, bytes_max):
            pass

    def take_once(self, consumer: Consumer, bytes_max: int) -> list[Output]:
        """One piece."""
        outputs = self.engine.take(consumer.session, bytes_max)
        assert consumer.session in self.ready or not outputs, "never announced"
        assert not (consumer.paused and any(isinstance(out, Rows) for out in outputs)), "paused"
        for output in outputs:
            consumer.hear(output, bytes_max, self.now)
        if consumer.replay is not None:
            self.go_on(consumer)
        if not outputs:
            self.ready.discard(consumer.session)
            (row,) = self.engine.session_stats(consumer.session).subscriptions
            consumer.drained(row)
        return outputs

    def go_on(self, consumer: Consumer) -> None:
        """A replay whose rows are out takes what came meanwhile, and at the head goes live."""
        if not consumer.script and consumer.cut == consumer.chronicle.head:
            consumer.replay, consumer.joined_at = None, self.now
            consumer.told.clear()
        elif not consumer.script:
            journal = consumer.chronicle.events(consumer.wish.focus, consumer.cut)
            consumer.script.extend(journal_script(consumer.wish, journal))
            consumer.cut = consumer.chronicle.head

    def hear_events(self) -> None:
        """Announcements, and what has expired."""
        for event in self.engine.events():
            match event:
                case SessionReady(session=session):
                    assert session not in self.ready, "announced twice"
                    if session in self.consumers:
                        self.ready.add(session)
                case RecordsExpired():
                    self.expired.append(event)


def snapshot_script(topic: Chronicle, wish: Wish) -> list[ScriptLine]:
    """The state at the cut, oldest row first, a window in its order (rule resume-1)."""
    focus = wish.focus
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
    lines += [("snapshot", own, offset, wish.shown(value))
              for own, offset, value in rows]  # fmt: skip
    return [*lines, ("end", f"{topic.epoch}-{topic.head}")]


def journal_script(wish: Wish, events: list[Event]) -> list[ScriptLine]:
    """Messages of the journal as a replay tells them."""
    puts = [event for event in events if not event.gone]
    rows = recorded(puts, wish) if wish.interval_ms else puts
    return [script_line(wish, event) for event in rows]


def recorded(puts: list[Event], wish: Wish) -> list[Event]:
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
            end = at + wish.interval_ns
        older = held.pop(event.key, None)
        if older is not None and older.exempt:
            held[f"{older.offset}"] = older
        held[event.key] = event
    return rows + sorted(held.values(), key=lambda event: event.offset)


def script_line(wish: Wish, event: Event) -> ScriptLine:
    """An event as an opening tells it."""
    if event.gone:
        return ("oof", event.key)
    return ("publish", event.key, event.offset, wish.shown(event.value))


def script(lines: list[ScriptLine]) -> deque[ScriptLine]:
    """What must be heard, in this order."""
    return deque(lines)
