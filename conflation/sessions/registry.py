"""The session registry: sessions and their subscribers, and the announcements to the gateway."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from tidegate.conflation.errors import LimitReached, SessionUnknown, SubscriptionUnknown
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import (
    BACK_PRESSURE,
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

# What is queued is sent only after an end that the client asked for; other ends free the queue.
_WANTED = ("REQUESTED", "CONTROL")


class SessionRegistry:
    """Sessions by id, and announcements that are kept until the gateway takes them."""

    def __init__(
        self, topics: Mapping[str, Topic], sessions_max: int, keys_max: int | None = None
    ) -> None:
        """`topics`: of the engine, for the accounting. `keys_max`: keys that may wait for one."""
        self._keys_max = keys_max
        self.accounting = Accounting(topics, self.subscriber_of)
        self._sessions: dict[str, Session] = {}
        self._sessions_max = sessions_max
        self._cohorts: dict[Lane, dict[Hashable, Cohort]] = {}
        self._announcements: list[Announcement] = []

    def __len__(self) -> int:
        return len(self._sessions)

    # --- Finding

    def isolate(self, session_id: str) -> Session:
        """Return a session that leaves its cohort: what follows concerns it alone.

        Raises:
            SessionUnknown: there is none, or its goodbye has been taken.
        """
        session = self.get(session_id)
        self.leave_cohort(session)
        return session

    def get(self, session_id: str) -> Session:
        """Return a session, which stays in its cohort.

        Raises:
            SessionUnknown: there is none, or its goodbye has been taken.
        """
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionUnknown("there is no such session")
        return found

    def present(self, session_ids: Iterable[str]) -> list[Session]:
        """Return those of these sessions that still exist; they stay in their cohorts."""
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
        return self.get(member.session).subscribers[member.name, member.subscription.topic]

    def of_topic(self, name: str) -> list[tuple[Session, Subscriber]]:
        """Return every subscriber in a topic; their sessions leave their cohorts."""
        found = [
            (session, subscriber)
            for session in self.sessions_of(name)
            for subscriber in session.subscribers
            if subscriber.topic.name == name
        ]
        for session, _ in found:
            self.leave_cohort(session)
        return found

    def sessions_of(self, name: str) -> list[Session]:
        """Return every session with a subscriber in a topic; they stay in their cohorts."""
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
        session = self.get(session_id)
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

        What is queued is dropped. Drains of ended subscriptions are still sent if the session ends
        because its last subscription did: that was promised when the subscription ended.
        """
        why = reason or session.ended or GONE
        if reason is not CloseReason.UNSUBSCRIBED:  # any other end has to free the queue now
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
        """Remove a session that has said goodbye, or whose peer is gone."""
        del self._sessions[session.id]

    # --- Subscribers

    def add(self, session: Session, subscriber: Subscriber, *, announced: bool) -> None:
        """Add a subscriber to its session; `announced` sends `subscribed`."""
        session.subscribers.add(subscriber)
        self.accounting.begin_at(subscriber)
        if announced:
            session.put(Subscribed(subscriber.member.name, subscriber.topic.name))

    def end_subscriber(self, session: Session, subscriber: Subscriber, reason: str) -> None:
        """End a subscription in a topic, and send its session `unsubscribed`.

        What is queued is sent before that if the client asked for the end and the topic does not
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
        """After a publish, end the subscriptions for which more than `keys_max` keys wait."""
        if self._keys_max is None:
            return
        for member in topic.crowded_members(self._keys_max):
            session = self.isolate(member.session)
            self.end_subscriber(session, self.subscriber_of(member), BACK_PRESSURE)

    def replace(self, session: Session, before: Subscriber, successor: Subscriber) -> None:
        """Replace a subscriber in its place and turn; what waits for the old one is dropped."""
        for watcher in before.watchers:
            watcher.ended(RENEWED)
        self.accounting.end(before, RENEWED)
        before.leave()
        session.subscribers.add(successor)
        self.accounting.begin_at(successor)

    def finish_query(self, session: Session, subscriber: Subscriber) -> None:
        """End a query (`sow`), all rows of which are sent."""
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

    def enter_cohort(self, session_id: str, kind: Hashable) -> Cohort | None:
        """Add a session to the cohort of its lane and kind; None: it takes its rows alone."""
        session = self._sessions.get(session_id)
        if session is None or not session.may_join_cohort:
            return None
        subscriber = session.only_subscriber
        lane, member = subscriber.lane, subscriber.member
        assert lane is not None, "only a subscriber in a lane may join a cohort"
        cohorts = self._cohorts.setdefault(lane, {})
        cohort = cohorts.get(kind)
        if cohort is None:
            cohort = cohorts[kind] = Cohort(member, lane, kind)
        elif not cohort.admits(member):
            return None
        cohort.enter(member)
        session.cohort = cohort
        return cohort

    def leave_cohort(self, session: Session, *, is_taking: bool = False) -> None:
        """Remove a session from its cohort, if it has one; announce it unless it `is_taking`."""
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

    def dissolve_far_behind(self, cohort: Cohort) -> list[Session] | None:
        """End a cohort that is far behind; each of its sessions is sent rows made in steps.

        Return these sessions; None if the cohort is not far behind.
        """
        # Before they leave, as only a cohort's members are known to have equal progress. This runs
        # at each flush, so no list of thousands of members is made unless it has to be.
        members = cohort.members.values()
        answer = cohort.lane.begin_catch_up(members) if members else None
        if answer is None:
            return None
        sessions = self.present(list(cohort.members))
        for session in sessions:
            self.leave_cohort(session)
            session.only_subscriber.send_catch_up(answer)
        cohort.ready = False
        return sessions

    def take_together(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        """Return rows that all sessions of a cohort have taken now; None if there are none.

        Rows that the lane cannot split and that are too large for one write end the cohort: each
        session takes them in pieces as it has room.
        """
        batch = cohort.take(bytes_max) if cohort.members else None
        if batch is None or not batch.frames:
            cohort.ready = False
            if batch is not None:
                self._wake_all(cohort)
            return None
        if batch.payload_bytes > bytes_max and len(batch.frames) > 1:
            for session in self.present(list(cohort.members)):
                self.leave_cohort(session)
                session.only_subscriber.split(batch)
            return None
        topic = self.get(next(iter(cohort.members))).only_subscriber.topic
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
        """Announce a flush: once for each cohort, and once for each session without a cohort."""
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
        """Record whether a take found outputs; one that only skipped rows is announced again."""
        session.ready = has_found
        if not has_found and session.is_catching_up:
            self.wake(session)

    def emit(self, announcement: Announcement) -> None:
        """Add an announcement for the gateway to act on."""
        self._announcements.append(announcement)

    def announcements(self) -> list[Announcement]:
        """Return the announcements since the last call."""
        happened, self._announcements = self._announcements, []
        return happened
