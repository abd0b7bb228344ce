"""Attaching: a reader is attached to a session, and resumes where the last one ended."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidegate.app.access.grants import Subject, check_owner
from tidegate.app.names import TopicPattern
from tidegate.app.streams.cursor import Cursor, EventId, Mark
from tidegate.app.streams.decisions import end_reason, granted_to
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.scheduler import in_turns
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscribe_request import UNKNOWN, RequestedSubscription, SubscribeRequest
from tidegate.app.streams.subscriptions import (
    FIRST,
    GrantedSubscription,
    PlainSubscription,
    SessionSubscription,
    changed,
    changes_rows,
    lanes_held,
    start_of,
)
from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.errors import (
    BookmarkExpired,
    LimitReached,
    SessionUnknown,
)
from tidegate.conflation.outputs import BACK_PRESSURE, CloseReason, Unsubscribed
from tidegate.conflation.sessions.backfill import overflows
from tidegate.conflation.sessions.lane_assignment import BOOKMARK_EXPIRED
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.conflation.steps import Steps, finished
from tidegate.conflation.subscription import Subscription
from tidegate.keys.errors import Refusal

AUTHORIZATION = "AUTHORIZATION"
"""The end of a subscription in a topic that its subject may not read any more."""

ATTACHED_AT_ONCE = 3  # subscriptions of a session: each with a key of its own costs 0.2 ms


def attach_new(
    session: Session,
    target: str | TopicPattern,
    request: SubscribeRequest,
    decisions: Mapping[str, RequestedSubscription],
) -> tuple[Reader, bytes]:
    """Attach the reader of a GET, with its one subscription; return it and the hello.

    Raises:
        Refusal: the caller discards the session.
    """
    reader = session.open_reader()
    asked, _ = session.subscribe(target, request, decisions, announced=False)
    if session.cursor is not None:
        session.pattern = asked.text
        session.on_attached(session)
        return reader, reader.hello(id_text=session.cursor.text)
    # If no opening rows follow, hello has an id: a reader that leaves now can continue from here.
    [found] = asked.topics.values()
    is_bare = found.start is not None and found.subscription.resume is None
    return reader, reader.hello(id_text=str(found.start) if is_bare else "")


def attach_plain(session: Session, plain: PlainSubscription) -> tuple[Reader, bytes]:
    """Attach the reader of a plain GET that shares its subscription; return it and the hello.

    Raises:
        EngineError: the caller discards the session.
    """
    reader = session.open_reader()
    subscription = plain.decided.subscription
    session.usage.check(session.subject, lanes_held(plain.asked), 1)
    start = start_of(session.context.driver.engine.topic(subscription.topic), subscription)
    session.share(plain.asked)
    reader.subscribe_plain(FIRST, subscription, plain.styles)
    is_bare = start is not None and subscription.resume is None
    return reader, reader.hello(id_text=str(start) if is_bare else "")


def attach_existing(session: Session, seen: EventId | None, retry_ms: int) -> Attachment:
    """Begin to attach a reader that has seen this id of the session.

    For a reader without an id, subscriptions with a snapshot begin with it; others continue
    after what the last reader's peer acknowledged. A reader that is still attached is replaced.

    Raises:
        LimitReached: there are too many sessions; a reader that was attached is closed.
    """
    cursor = session.cursor
    assert cursor is not None
    session.replace_reader(retry_ms)  # first: the engine knows one session of this id at a time
    try:
        reader = session.open_reader()
    except LimitReached:  # the earlier reader is gone already, so the session is away
        session.on_left(session)
        raise
    session.on_attached(session)
    session.was_read = True
    return Attachment(session, reader, cursor, seen)


def admit_reader(session: Session, subject: Subject | None) -> None:
    """Admit the subject that opened a session as its reader, with its present grants.

    Subscriptions end in topics that it may not read any more. In topics of which it may see other
    rows now they restart, with a snapshot.

    Raises:
        Refused: session-unknown, for a session of another subject.
    """
    if subject is None:
        return
    check_owner(subject, session.owner)
    session.subject = subject
    for asked in [*session.asked.values(), *session.evicted.values()]:
        if asked.request.grants != subject.grants:
            asked.request = asked.request.by(subject)
            for topic in list(asked.topics):
                _entitle(session, asked, topic)


def _entitle(session: Session, asked: SessionSubscription, topic: str) -> None:
    before = asked.topics[topic]
    try:
        decision = granted_to(session.context, topic, asked.request, by_pattern=asked.by_pattern)
    except Refusal as error:
        if error.code == "forbidden":
            session.drop(asked.name, topic)
            if session.cursor is not None:
                session.cursor.end((asked.name, topic))
            session.note_end(Unsubscribed(asked.name, topic, AUTHORIZATION))
        return  # a topic that is gone ends when the reader attaches
    after = asked.topics[topic] = changed(before, decision, paused=None)
    if session.cursor is not None and changes_rows(before.subscription, after.subscription):
        session.cursor.drop_mark((asked.name, topic))


class Attachment:
    """A reader that is being attached, in steps: each subscription may take 0.2 ms.

    Any other change of the subscriptions has to call `finish` first, so that all of them exist.

    Attributes:
        hello: the first event; empty until all are subscribed.
    """

    def __init__(
        self, session: Session, reader: Reader, cursor: Cursor, seen: EventId | None
    ) -> None:
        self.reader = reader
        self.hello = b""
        self._session = session
        self._cursor = cursor
        self._is_new = seen is None
        self._since = cursor.confirmed if seen is None else seen.number
        place = "" if seen is None else seen.place
        self._marks: Mapping[SubscriberId, Mark] | None = cursor.marks(self._since, place)
        # Those that have ended unseen, and may have begun again since.
        self._ended = {(end.name, end.topic) for at, end in cursor.endings if self._is_unseen(at)}
        # One that was closed for a full queue would be closed again, and could never come back.
        self._applies_policies = reader.came_after is not CloseReason.QUEUE_LIMIT
        self._gone: set[str] = set()
        self._steps = self._attach()
        session.finish_attaching = self.finish
        next(self._steps, None)  # mostly there is only one step

    def finish(self) -> None:
        """Run all remaining steps, unless one of them is the caller."""
        if inspect.getgeneratorstate(self._steps) != inspect.GEN_RUNNING:
            finished(self._steps)

    async def in_turns(self) -> None:
        """Run the remaining steps in several iterations; if cancelled, the reader has left."""
        try:
            if not self.hello:
                await in_turns(self._steps)
        except BaseException:
            if self._session.reader is self.reader:
                self._session.finish_attaching = None
            self.reader.close()
            raise

    def _attach(self) -> Steps[None]:
        """Subscribe every subscription that still can be, and record the ends of the others."""
        session, reader = self._session, self.reader
        begins: dict[SubscriberId, Subscription] = {}
        for asked in list(session.asked.values()):
            for topic in list(asked.topics):
                found = self._present(asked, topic)
                if found is not None:
                    begins[asked.name, topic] = found
        self._cursor.rewind(
            {
                subscriber: each.resume
                for subscriber, each in begins.items()
                if not _is_replayed(each)
            }
        )
        if self._cursor.number in self._cursor.replaced:
            # Nothing has moved since the goodbye to the earlier reader, whose id is not admitted.
            self._cursor.next_id()
        # The reader has named what it has, so all of that counts as received.
        self._cursor.confirmed = self._cursor.number
        reason = self._apply_queue_policies(begins)
        # Topics of a pattern may be created and deleted between steps, so all are subscribed now.
        pauses = len(begins) > ATTACHED_AT_ONCE and not any(
            asked.by_pattern for asked in session.asked.values()
        )
        entries: list[dict[str, object]] = []
        with contextlib.suppress(SessionUnknown):  # it was closed between two steps
            for number, (subscriber, subscription) in enumerate(begins.items()):
                if pauses and number % ATTACHED_AT_ONCE == 0:
                    yield
                    if session.reader is not reader or session.has_ended:
                        break  # another reader has come, or the session has moved or ended
                if subscriber[1] not in self._gone:
                    entries += self._subscribed(subscriber, subscription)
        is_replaced = session.reader is not reader  # the cursor is that of the other reader then
        id_text = "" if is_replaced else self._cursor.text
        self.hello = reader.hello(id_text=id_text, entries=entries)
        if is_replaced:
            return
        session.finish_attaching = None
        self._send_endings()
        if reason is not None:
            reader.consumer.give_up(reason)

    def _subscribed(
        self, subscriber: SubscriberId, subscription: Subscription
    ) -> Iterator[dict[str, object]]:
        """Subscribe, and yield its entry of the hello; nothing if its topic has ended since."""
        name, topic = subscriber
        asked, context = self._session.asked[name], self._session.context
        entry = context.catalog.served(topic)
        if entry is None or entry.record.epoch != asked.topics[topic].epoch:
            found = self._present(asked, topic)
            if found is None:
                return
            subscription = found
        form = asked.topics[topic].form
        # After its end, which the hello would come before.
        has_ended = subscriber in self._ended
        try:
            style = self.reader.subscribe(name, subscription, form, announced=has_ended)
        except BookmarkExpired:  # with `bookmark_not_found=fail`
            self._end(subscriber, BOOKMARK_EXPIRED)
            return
        if not has_ended:
            yield style.entry(name)

    def _present(self, asked: SessionSubscription, topic: str) -> Subscription | None:
        """Return how a subscription begins in a topic; None if it has ended there."""
        subscriber = asked.name, topic
        try:
            found = self._still_granted(asked, topic)
        except BookmarkExpired:
            self._end(subscriber, BOOKMARK_EXPIRED)
            return None
        if found is None:
            self._end(subscriber, end_reason(self._session.context, topic))
            return None
        if self._marks is not None and found.is_over(self._marks.get(subscriber)):
            self._session.drop(*subscriber)
            return None
        return replace(found.subscription, resume=self._mark(subscriber, found))

    def _end(self, subscriber: SubscriberId, reason: str) -> None:
        self._session.drop(*subscriber)
        # Its topic may come back in its epoch, where a failover has lost its deletion.
        self._cursor.end(subscriber)
        self._session.note_end(Unsubscribed(*subscriber, reason))

    def _still_granted(self, asked: SessionSubscription, topic: str) -> GrantedSubscription | None:
        """Return what was granted; None if the topic was deleted, even if it was created again.

        Raises:
            BookmarkExpired: the topic has begun again, and is not to be read from another place.
        """
        found, context = asked.topics[topic], self._session.context
        entry = context.catalog.served(topic)
        if entry is None or context.catalog.has_ended(found.epoch):
            return None
        epoch = entry.record.epoch
        if epoch == found.epoch:
            return found
        if found.epoch in context.driver.engine.topic(topic).continues:
            # The same topic in another life of the bus: what was granted stays.
            found = asked.topics[topic] = found._replace(epoch=epoch)
            return found
        try:
            return self._session.regrant(asked, topic)
        except BookmarkExpired:
            raise
        except Refusal:
            return None

    def _mark(self, subscriber: SubscriberId, found: GrantedSubscription) -> Mark:
        if self._marks is None:
            return UNKNOWN
        # A reader that is sent the end of a topic lets go what it has of that, and of the one that
        # was created again: it may have the end already, from before a reader that saw less.
        begins = subscriber in self._ended or (self._is_new and found.subscription.command.queries)
        if begins or subscriber not in self._marks:
            return found.start
        return self._marks[subscriber] or UNKNOWN

    def _apply_queue_policies(
        self, begins: Mapping[SubscriberId, Subscription]
    ) -> CloseReason | None:
        """Apply queue policies to missed messages, as if they had been queued (CONTRACT 4.2).

        Not for a reader that was closed for a full queue: it gets what the journal has.
        """
        session, engine = self._session, self._session.context.driver.engine
        limits = session.limits
        if not self._applies_policies:
            return None
        for (_, name), subscription in begins.items():
            topic = engine.topic(name)
            if not overflows(topic, subscription, limits, conflated=session.conflated):
                continue
            policy = topic.definition.policy if session.conflated else QueuePolicy.OFF
            if policy is QueuePolicy.OFF:
                return CloseReason.QUEUE_LIMIT
            if policy is QueuePolicy.UNSUBSCRIBE:
                self._gone.add(name)
        for subscriber in begins:
            if subscriber[1] in self._gone:
                session.evict(*subscriber)
                self._cursor.end(subscriber)
                session.note_end(Unsubscribed(*subscriber, BACK_PRESSURE))
        return None

    def _send_endings(self) -> None:
        """Send the ends of subscriptions that the reader may not have seen."""
        cursor = self._cursor
        endings, cursor.endings = cursor.endings, ()
        for number, end in endings:
            if self._is_unseen(number):
                self._session.send_end(end)
            else:
                cursor.endings = (*cursor.endings, (number, end))

    def _is_unseen(self, number: int) -> bool:
        """Return True for a number that the reader may not have seen."""
        return self._marks is None or number > self._since


def _is_replayed(subscription: Subscription) -> bool:
    """Return True for a replay that a reader without a bookmark starts again."""
    return subscription.resume is None and not subscription.command.queries
