"""The gateway's session: its subscriptions, and a reader that may be away for a while.

The session of a plain GET has one subscription, uses its topic's bookmarks as ids, and ends with
its stream. A kept session has a cursor for its ids, and waits for its reader to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import islice
from types import MappingProxyType

from tidegate.app.access.grants import Subject
from tidegate.app.names import TopicPattern
from tidegate.app.refusals import Refused
from tidegate.app.streams.auto import at_interval
from tidegate.app.streams.cursor import Cursor
from tidegate.app.streams.decisions import SessionContext, declined, granted_to
from tidegate.app.streams.encoding import goodbye, unsubscribed
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.subscribe_request import RequestedSubscription, SubscribeRequest
from tidegate.app.streams.subscriptions import (
    GrantedSubscription,
    GrantedTopics,
    SessionSubscription,
    changed,
    changes_rows,
    check_count,
    granted,
    lanes_held,
    lanes_of,
    left_out,
    passed_over,
    warnings_of,
)
from tidegate.conflation.outputs import BACK_PRESSURE, CloseReason, Unsubscribed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import Refusal

NONE_EVICTED: Mapping[SubscriberId, SessionSubscription] = MappingProxyType({})
NONE_ASKED: Mapping[str, SessionSubscription] = MappingProxyType({})


class State(StrEnum):
    """The state of a session."""

    ATTACHED = "attached"
    AWAY = "away"
    ENDED = "ended"


class Session:
    """Subscriptions by name; while a reader is attached, each of their topics has a subscriber.

    Attributes:
        asked: the subscriptions, perhaps shared with equal sessions; to change one, call `own`.
        closed: why the last reader was closed.
        lasts: the session stays open without subscriptions.
        pattern: the pattern of a plain GET.
        named: how many names were used.
        evicted: subscribers that ended with BACK_PRESSURE, and begin again after a transfer to
            another gateway.
        subject: that of the reader, with authentication.
        owner: the subject's `sub`, which is all of it that a transfer takes along.
        address, agent: of the client that reads it, or read it last.
        attached_ms: when that reader came; 0 before the first.
        finish_attaching: subscribes the rest of a reader that is attached in steps.
    """

    __slots__ = (
        "address", "agent", "asked", "attached_ms", "closed", "conflated", "context", "cursor",
        "evicted", "finish_attaching", "has_ended", "id", "lasts", "limits", "named", "on_attached",
        "on_left", "opened_ms", "owner", "pattern", "reader", "subject", "usage", "was_read",
    )  # fmt: skip

    def __init__(
        self,
        context: SessionContext,
        session_id: str,
        on_attached: Callable[[Session], None],
        on_left: Callable[[Session], None],
        *,
        limits: QueueLimits | None = None,
        conflated: bool = True,
        kept: bool = False,
        lasts: bool = False,
        subject: Subject | None = None,
    ) -> None:
        self.subject = subject
        self.owner = "" if subject is None else subject.sub
        self.usage = context.quotas.usage(self.owner)
        self.id = session_id
        self.context = context
        self.on_attached, self.on_left = on_attached, on_left
        self.limits = limits or context.driver.limits
        self.conflated, self.lasts = conflated, lasts
        self.opened_ms = context.driver.wall_ms()
        self.attached_ms = 0
        self.asked = NONE_ASKED
        self.reader: Reader | None = None
        self.finish_attaching: Callable[[], None] | None = None
        self.cursor = Cursor(session_id) if kept else None
        # Replaced, not changed, so that sessions without any share `NONE_EVICTED`.
        self.evicted: Mapping[SubscriberId, SessionSubscription] = NONE_EVICTED
        self.closed: CloseReason | None = None
        self.has_ended = self.was_read = False
        self.pattern, self.named = "", 0
        self.address = self.agent = ""

    @property
    def state(self) -> State:
        """Attached to a reader, waiting for one, or over."""
        if self.has_ended:
            return State.ENDED
        return State.AWAY if self.reader is None else State.ATTACHED

    @property
    def is_read(self) -> bool:
        """True while the engine has subscribers: a reader is attached and was not closed."""
        return self.reader is not None and self.closed is None

    def open_reader(self) -> Reader:
        """Open the session in the engine, and attach a new reader.

        Raises:
            LimitReached: the engine has as many sessions as it may have.
        """
        consumer = self.context.driver.open(
            self.id, self.limits, lasts=self.lasts, conflated=self.conflated
        )
        # Cleared only now: if the engine refuses this reader, the next one gets the reason.
        closed, self.closed = self.closed, None
        self.attached_ms = self.context.driver.wall_ms()
        self.reader = Reader(
            self.context.driver,
            consumer,
            self.cursor,
            heartbeat_ms=self.context.settings.heartbeat.ms,
            came_after=closed,
            on_closed=self._reader_left,
            # A plain GET has no ids to keep for another reader.
            on_subscriber_left=self._subscriber_left if self.cursor is not None else None,
        )
        if self.context.outage.is_on:  # `Outage` notifies only streams that were open
            consumer.send(self.context.outage.notice())
        return self.reader

    def _reader_left(self) -> None:
        self.on_left(self)

    def replace_reader(self, retry_ms: int) -> None:
        """Close the reader with the goodbye REPLACED; a reader with its id is not admitted."""
        if self.reader is not None:
            self.finish_attaching = None  # the next reader subscribes to all
            self.reader.keep_endings()
            id_text = "" if self.cursor is None else self.cursor.note_goodbye()
            self.reader.consumer.replace(goodbye(CloseReason.REPLACED, retry_ms, id_text))

    def subscribe(
        self,
        target: str | TopicPattern,
        request: SubscribeRequest,
        decisions: Mapping[str, RequestedSubscription],
        *,
        announced: bool = True,
    ) -> tuple[SessionSubscription, tuple[str, ...]]:
        """Add a subscription; return it with its warnings.

        A pattern gets as many topics as there is room for, at least one; a warning and the event
        `refused` name the others.

        `decisions`: what the request gets of each topic. `announced`: an attached reader gets
        `subscribed`.

        Raises:
            Refusal: nothing was added.
        """
        request = request.by(self.subject)
        by_pattern = isinstance(target, TopicPattern)
        if by_pattern:
            room = max(1, self._room(len(decisions)))
            decisions = dict(islice(decisions.items(), room))
        self.check_room(len(decisions))
        self.usage.check(self.subject, lanes_of(decisions), len(decisions))
        # Granted before anything is added: a pattern is added whole or not at all.
        engine = self.context.driver.engine
        grants = {name: granted(engine.topic(name), it) for name, it in decisions.items()}
        asked = SessionSubscription(
            f"s{self.named + 1}", target, request, GrantedTopics(self.usage, grants)
        )
        self.named += 1
        self.own()[asked.name] = asked
        # The client has subscribed again, so a transfer need not.
        self._forget_evicted(lambda subscriber: subscriber[1] in decisions)
        if self.is_read and self.reader is not None:
            for found in asked.topics.values():
                self.reader.subscribe(
                    asked.name, found.subscription, found.form, announced=announced
                )
        if by_pattern and request.command != Command.SOW:
            self.follow(asked)
        warnings = warnings_of(decisions.values())
        others = declined(self.context, asked) if by_pattern and not self._room(1) else {}
        if others:
            refusal = left_out(self.context.settings.session_subscriptions_max, others)
            warnings = (*warnings, refusal.detail)
            if self.reader is not None:
                self.reader.consumer.send(passed_over(asked.name, asked.text, refusal))
        return asked, warnings

    def share(self, asked: Mapping[str, SessionSubscription]) -> None:
        """Use a subscription that sessions of equal requests share."""
        self.asked, self.named = asked, len(asked)
        for wanted in lanes_held(asked):
            self.usage.hold(*wanted)

    def own(self) -> dict[str, SessionSubscription]:
        """Return the subscriptions to be changed; shared ones are replaced by copies."""
        if self.finish_attaching is not None:
            self.finish_attaching()
        if isinstance(self.asked, dict):
            return self.asked
        shared = self.asked
        own = self.asked = {name: each.copy(self.usage) for name, each in shared.items()}
        for wanted in lanes_held(shared):  # after the copies hold them: no lane's count drops to 0
            self.usage.release(*wanted)
        return own

    def change(
        self, name: str, request: SubscribeRequest, *, paused: bool | None
    ) -> tuple[str, ...]:
        """Change a subscription's request, in all of its topics or in none.

        Raises:
            Refusal: nothing was changed.
        """
        self.own()
        asked = self.subscription(name)
        decisions = {topic: self._decided(asked, topic, request) for topic in asked.topics}
        self.usage.check(self.subject, lanes_of(decisions), 0)
        asked.request = request
        for topic, decision in decisions.items():
            before = asked.topics[topic]
            after = asked.topics[topic] = changed(before, decision, paused=paused)
            is_anew = changes_rows(before.subscription, after.subscription)
            if is_anew and self.cursor is not None:
                self.cursor.drop_mark((name, topic))
            if self.reader is not None:
                self.reader.change(name, after.subscription, changes_rows=is_anew)
                self.reader.send_interval(name, before.subscription, after.subscription)
        return warnings_of(decisions.values())

    def unsubscribe(self, name: str) -> None:
        """End a subscription; its reader gets `unsubscribed`, now or when it comes back.

        Raises:
            Refused: subscription-unknown.
        """
        own, asked = self.own(), self.subscription(name)
        topics = list(asked.topics)
        asked.end()
        del own[name]
        self._forget_evicted(lambda subscriber: subscriber[0] == name)
        if self.reader is not None and self.reader.unsubscribe(name):
            return  # the engine sends `unsubscribed` itself, after the rows that still wait
        for topic in topics or [asked.text]:
            self.send_end(Unsubscribed(name, topic, "REQUESTED"))

    def subscription(self, name: str) -> SessionSubscription:
        """Return the subscription of this name.

        Raises:
            Refused: subscription-unknown.
        """
        found = self.asked.get(name)
        if found is None:
            raise Refused("subscription-unknown", "The session has no such subscription.")
        return found

    def tune(self, limits: QueueLimits, *, conflated: bool) -> None:
        """Set the session's limits, and switch its queue policies on or off."""
        self.limits, self.conflated = limits, conflated
        if self.reader is not None:
            self.reader.tune(limits, conflated=conflated)

    def drop(self, name: str, topic: str) -> None:
        """Remove a topic from a subscription, which ends without topics and without a pattern."""
        own = self.own()
        asked = own.get(name)
        if asked is None:
            return
        asked.topics.drop(topic)
        if not asked.by_pattern:
            del own[name]

    def _subscriber_left(self, end: Unsubscribed) -> None:
        if end.reason == BACK_PRESSURE:
            self.evict(end.name, end.topic)
        else:
            self.drop(end.name, end.topic)

    def evict(self, name: str, topic: str) -> None:
        """Remove a topic that ended with BACK_PRESSURE, and keep it for a transfer."""
        asked = self.asked.get(name)
        found = None if asked is None else asked.topics.get(topic)
        if asked is not None and found and found.subscription.command is not Command.SOW:
            self.evicted = {**self.evicted, (name, topic): asked}
        self.drop(name, topic)

    def note_end(self, end: Unsubscribed) -> str:
        """Keep the end of a subscription, if there may be another reader; return its id."""
        return "" if self.cursor is None else self.cursor.note_end(end)

    def send_end(self, end: Unsubscribed) -> None:
        """Keep the end of a subscription, and send it to an attached reader."""
        id_text = self.note_end(end)
        if self.reader is not None:
            self.reader.consumer.send(unsubscribed(end, id_text))

    def end(self) -> None:
        """End the session: release its subscriptions."""
        if not self.has_ended:
            self.usage.sessions -= 1
        self.has_ended = True
        for asked in self.own().values():
            asked.end()
        self.asked = NONE_ASKED
        self.evicted = NONE_EVICTED

    def regrant(self, asked: SessionSubscription, topic: str) -> GrantedSubscription:
        """Decide what a subscription gets of a topic that is new, or was created again.

        Raises:
            Refusal: it does not fit the topic.
        """
        decision = self._decided(asked, topic, asked.request)
        self.usage.check(self.subject, lanes_of({topic: decision}), topic not in asked.topics)
        found = granted(self.context.driver.engine.topic(topic), decision)
        if asked.auto is not None:
            interval_ns = asked.auto.state.interval_ns
            found = found._replace(subscription=at_interval(found.subscription, interval_ns))
        asked.topics[topic] = found
        return found

    def follow(self, asked: SessionSubscription) -> None:
        """Add topics to the subscription as they are created; one that does not fit is reported."""

        def made(topic: str) -> None:
            if asked.admits(topic):
                self.add_topic(asked, topic)

        catalog = self.context.catalog
        catalog.listen(made)
        asked.unlisten = lambda: catalog.unlisten(made)

    def add_topic(self, asked: SessionSubscription, topic: str) -> None:
        """Add a topic to the subscription of a pattern; one that does not fit is reported."""
        try:
            self.check_room(1)
            found = self.regrant(asked, topic)
            if self.is_read and self.reader is not None:
                self.reader.subscribe(asked.name, found.subscription, found.form, announced=True)
        except Refusal as error:
            asked.topics.drop(topic)
            if self.reader is not None:
                self.reader.consumer.send(passed_over(asked.name, topic, error))

    def _decided(
        self, asked: SessionSubscription, topic: str, request: SubscribeRequest
    ) -> RequestedSubscription:
        return granted_to(self.context, topic, request, by_pattern=asked.by_pattern)

    def check_room(self, more: int) -> None:
        """Refuse more subscriptions, each topic of a pattern being one, than a session may have.

        Raises:
            Refused: limit-reached.
        """
        most = self.context.settings.session_subscriptions_max
        check_count(most - self._room(more) + more, most)

    def _room(self, more: int) -> int:
        """Return how many more subscriptions it may have; `more` are wanted."""
        most = self.context.settings.session_subscriptions_max
        if self._count() + more > most:
            self._forget_finished()  # only if needed, as it walks through the cursor's steps
        return most - self._count()

    def _count(self) -> int:
        return sum(len(asked.topics) for asked in self.asked.values())

    def _forget_evicted(self, is_over: Callable[[SubscriberId], bool]) -> None:
        kept = {each: it for each, it in self.evicted.items() if not is_over(each)}
        self.evicted = kept or NONE_EVICTED

    def _forget_finished(self) -> None:
        """Remove finished `sow` subscriptions once their reader is known to have everything.

        Until then a `sow` may have to be sent again.
        """
        marks = {} if self.cursor is None else self.cursor.marks(self.cursor.confirmed) or {}
        for asked in list(self.asked.values()):
            for topic, found in list(asked.topics.items()):
                if found.is_over(marks.get((asked.name, topic))):
                    self.drop(asked.name, topic)
