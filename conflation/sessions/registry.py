"""The session registry: sessions and their subscribers, and the announcements to the gateway."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from tidegate.conflation.errors import LimitReached, SessionUnknown, SubscriptionUnknown
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import (
    Announcement,
    CloseReason,
    CohortReady,
    Goodbye,
    Rows,
    SessionClosed,
    SessionReady,
    Subscribed,
    Unsubscribed,
)
from tidegate.conflation.sessions.accounting import Accounting, SessionStats, subscription_stats
from tidegate.conflation.sessions.session import Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.topics.topic import Topic

GONE = "GONE"
"""The reason for what is dropped when a peer leaves without a word."""

RENEWED = "RENEWED"
"""The reason for what is dropped when a topic begins again: a snapshot takes its place."""

# Only an end that the client asked for lets it have what is queued: the others free the queue.
_WANTED = ("REQUESTED", "CONTROL")


class SessionRegistry:
    """Sessions by id. Announcements pile up until the gateway takes them."""

    def __init__(
        self, topics: Mapping[str, Topic], sessions_max: int, keys_max: int | None = None
    ) -> None:
        """`topics`: those of the engine, for the accounting. `keys_max`: of a subscription."""
        self._keys_max = keys_max
        self.accounting = Accounting(topics, self.subscriber_of)
        self._sessions: dict[str, Session] = {}
        self._sessions_max = sessions_max
        self._cohorts: dict[Lane, dict[Hashable, Cohort]] = {}
        self._announcements: list[Announcement] = []

    def __len__(self) -> int:
        return len(self._sessions)

    # --- Finding

    def find(self, session_id: str) -> Session:
        """Return a session for something that concerns it alone: it leaves its cohort.

        Raises:
            SessionUnknown: there is none, or its goodbye has been taken.
        """
        found = self.seen(session_id)
        self.part(found)
        return found

    def seen(self, session_id: str) -> Session:
        """Return a session to look at.

        Raises:
            SessionUnknown: there is none, or its goodbye has been taken.
        """
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionUnknown("there is no such session")
        return found

    def present(self, session_ids: Iterable[str]) -> list[Session]:
        """Return those of these sessions that are still there, to look at."""
        return [self._sessions[each] for each in session_ids if each in self._sessions]

    def subscribers(self, session: Session, name: str) -> list[Subscriber]:
        """Return the subscribers of one subscription.

        Raises:
            SubscriptionUnknown: it has none.
        """
        subscribers = session.subscribers_of(name)
        if not subscribers:
            raise SubscriptionUnknown(f"the session has no subscription {name}")
        return subscribers

    def subscriber_of(self, member: Member) -> Subscriber:
        """Return the subscriber that a lane knows as a member."""
        return self.seen(member.session).subscribers[member.name, member.subscription.topic]

    def of_topic(self, name: str) -> list[tuple[Session, Subscriber]]:
        """Return every subscriber in a topic; their sessions leave their cohorts."""
        found = [
            (session, subscriber)
            for session in self.sessions_of(name)
            for subscriber in session.subscribers
            if subscriber.topic.name == name
        ]
        for session, _ in found:
            self.part(session)
        return found

    def sessions_of(self, name: str) -> list[Session]:
        """Return every session with a subscriber in a topic, to look at."""
        return [
            session
            for session in self._sessions.values()
            if any(subscriber.topic.name == name for subscriber in session.subscribers)
        ]

    def stats(self, session_id: str) -> SessionStats:
        """Return the counters of a session and its subscriptions.

        Raises:
            SessionUnknown: there is none.
        """
        session = self.seen(session_id)
        messages, size = session.queued()
        rows = tuple(map(subscription_stats, session.subscribers))
        return SessionStats(session.id, messages, size, rows)

    # --- Sessions

    def open(self, session: Session) -> None:
        """Add a session.

        Raises:
            LimitReached: there are as many sessions as allowed.
        """
        assert session.id not in self._sessions, "session ids are never used twice"
        if len(self._sessions) >= self._sessions_max:
            raise LimitReached(f"there are {self._sessions_max} sessions already")
        self._sessions[session.id] = session

    def close(self, session: Session, reason: CloseReason | None) -> None:
        """End a session: with a reason it still takes a goodbye, without one its peer is gone.

        What is queued is dropped. What drains of ended subscriptions is still sent if the session
        ends because its last subscription did: that was promised at the subscription's end.
        """
        why = reason or session.ended or GONE
        if reason is not CloseReason.UNSUBSCRIBED:
            # A drain holds promised rows, but an end for any other reason has to free the queue
            # now.
            for drain in session.drains():
                drain.drop(why)
        for subscriber in session.subscribers:
            self._remove(session, subscriber, why)
        if reason is None:
            self.forget(session)
            self.emit(SessionClosed(session.id, session.ended))
        elif session.ended is None:  # the first reason counts: it is in the outbox already
            session.ended = reason
            session.put(Goodbye(reason))
            self.emit(SessionClosed(session.id, reason))
            self.wake(session)

    def close_empty(self, session: Session) -> None:
        """End a session with its last subscription, unless it lasts."""
        if not session.subscribers and session.ended is None and not session.lasts:
            self.close(session, CloseReason.UNSUBSCRIBED)

    def forget(self, session: Session) -> None:
        """Remove a session that has said goodbye, or whose peer is not there to hear one."""
        del self._sessions[session.id]

    # --- Subscribers

    def add(self, session: Session, subscriber: Subscriber, *, announced: bool) -> None:
        """Add a subscriber to its session; `announced` sends `subscribed`."""
        session.subscribers.add(subscriber)
        self.accounting.begin_at(subscriber)
        if announced:
            session.put(Subscribed(subscriber.member.name, subscriber.topic.name))

    def leave(self, session: Session, subscriber: Subscriber, reason: str) -> None:
        """End a subscriber, and send its session the end.

        What is queued is sent before, where the client asked for the end and the topic does not
        tidy on unsubscribe.
        """
        # The rows leave the lane with the subscriber, so they are taken before it leaves.
        drains = reason in _WANTED and subscriber.drains
        if drains:
            sums = self.accounting.sums(subscriber.topic.name)
            session.put(subscriber.drain(sums))
        self._remove(session, subscriber, reason, drains=drains)
        end = Unsubscribed(subscriber.member.name, subscriber.topic.name, reason)
        session.put(end)
        self.accounting.count_end(reason)
        self.wake(session)
        self.close_empty(session)

    def end_crowding(self, topic: Topic) -> None:
        """End the subscriptions for which more keys wait than may, after a publish."""
        if self._keys_max is None:
            return
        for member in topic.crowding(self._keys_max):
            self.leave(self.find(member.session), self.subscriber_of(member), "BACK_PRESSURE")

    def replace(self, session: Session, before: Subscriber, successor: Subscriber) -> None:
        """Put another subscriber in the place of one; what waits for the old one is dropped."""
        for watcher in before.watchers:
            watcher.ended(RENEWED)
        self.accounting.end(before, RENEWED)
        before.leave()
        session.subscribers.add(successor)  # in the place of the old one, and in its turn
        self.accounting.begin_at(successor)

    def finish(self, session: Session, subscriber: Subscriber) -> None:
        """End a query: all its rows are out."""
        for watcher in subscriber.watchers:
            watcher.ended("FINISHED")
        session.subscribers.remove(subscriber)
        self.close_empty(session)

    def _remove(
        self, session: Session, subscriber: Subscriber, reason: str, *, drains: bool = False
    ) -> None:
        for watcher in subscriber.watchers:
            watcher.ended(reason)
        session.subscribers.remove(subscriber)
        self.accounting.end(subscriber, reason, drains=drains)
        subscriber.leave()

    # --- Cohorts

    def gather(self, session_id: str, kind: Hashable) -> Cohort | None:
        """Let a session take with those that are like it; None: it goes on by itself."""
        session = self._sessions.get(session_id)
        if session is None or not session.is_like_others:
            return None
        subscriber = session.only_subscriber
        lane, member = subscriber.lane, subscriber.member
        assert lane is not None, "it is like others of its lane"
        cohorts = self._cohorts.setdefault(lane, {})
        cohort = cohorts.get(kind)
        if cohort is None:
            cohort = cohorts[kind] = Cohort(member, lane, kind)
        elif not cohort.admits(member):
            return None
        cohort.enter(member)
        session.cohort = cohort
        return cohort

    def part(self, session: Session, *, is_taking: bool = False) -> None:
        """Let a session leave its cohort, if it is in one; announce it unless it `is_taking`."""
        cohort = session.cohort
        if cohort is None:
            return
        session.cohort = None
        cohort.leave(session.only_subscriber.member)
        if not cohort.members:
            cohorts = self._cohorts[cohort.lane]
            del cohorts[cohort.kind]
            if not cohorts:
                del self._cohorts[cohort.lane]
        if not is_taking:
            self.wake(session)

    def answer_together(self, cohort: Cohort) -> list[Session] | None:
        """End a cohort that is far behind: an answer made in steps is for each of its sessions.

        Return these; None for a cohort that is not.
        """
        # Asked before they leave, as only a cohort's members are known to be alike. Each flush
        # asks, so nothing is made of thousands of members unless it has to be.
        members = cohort.members.values()
        answer = cohort.lane.answer(members) if members else None
        if answer is None:
            return None
        sessions = self.present(list(cohort.members))
        for session in sessions:
            self.part(session)
            session.only_subscriber.follow(answer)
        cohort.ready = False
        return sessions

    def take_together(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        """Return rows that all sessions of a cohort have taken now; None if there are none.

        An answer that cannot be cut and is too large for one write ends the cohort: each session
        takes its pieces as it has room for them.
        """
        batch = cohort.take(bytes_max) if cohort.members else None
        if batch is None or not batch.frames:
            cohort.ready = False
            if batch is not None:
                self._wake_all(cohort)
            return None
        if batch.payload_bytes > bytes_max and len(batch.frames) > 1:
            for session in self.present(list(cohort.members)):
                self.part(session)
                session.only_subscriber.divide(batch)
            return None
        topic = self.seen(next(iter(cohort.members))).only_subscriber.topic
        # No name: only sessions of several subscriptions write one.
        return Rows("", topic.name, topic.epoch, "publish", batch)

    def _wake_all(self, cohort: Cohort) -> None:
        """Announce that a cohort has something to take, once until a take finds nothing."""
        if not cohort.ready:
            cohort.ready = True
            self._announcements.append(CohortReady(cohort))

    # --- Events

    def wake(self, session: Session) -> None:
        """Announce that a session has something to take, once until a take finds nothing."""
        if not session.ready:
            session.ready = True
            self._announcements.append(SessionReady(session.id))

    def announce(self, lane: Lane) -> None:
        """Announce a flush: once for each cohort, and to each session by itself of the others."""
        together = 0
        for cohort in self._cohorts.get(lane, {}).values():
            self._wake_all(cohort)
            together += len(cohort.members)
        if together == len(lane.members):
            return
        for member in lane.members.values():
            session = self._sessions[member.session]
            if session.cohort is None:
                self.wake(session)

    def taken(self, session: Session, *, has_found: bool) -> None:
        """Note what a take has found; one that only passed rows over is announced again."""
        session.ready = has_found
        if not has_found and session.is_midway:
            self.wake(session)

    def emit(self, announcement: Announcement) -> None:
        """Add an announcement for the gateway to act on."""
        self._announcements.append(announcement)

    def announcements(self) -> list[Announcement]:
        """Return the announcements since the last call."""
        happened, self._announcements = self._announcements, []
        return happened
