"""Bugs planted in queues and their policies; the columns are those of bugs.py."""

from __future__ import annotations

from tests.support.planted.lanes import Planted

POLICIES = "test_state_machine_policies:PolicyMachine"

QUEUES: dict[str, Planted] = {
    "an unsubscribe topic ends only the queue that is long": (
        POLICIES,
        "conflation/sessions/queue_limits.py",
        "        ended = [each for each in session.subscribers if each.topic in crowding]",
        "        ended = [each for each in queued if each.topic in crowding]",
    ),
    "an off topic is conflated too": (
        POLICIES,
        "conflation/sessions/queue_limits.py",
        "            if subscriber.topic.definition.policy is QueuePolicy.CONFLATE:",
        "            if subscriber.topic.definition.policy is not QueuePolicy.UNSUBSCRIBE:",
    ),
    "a session that is not conflated is conflated": (
        POLICIES,
        "conflation/sessions/queue_limits.py",
        "        if session.is_above(FULL_PERCENT) and session.conflated:",
        "        if session.is_above(FULL_PERCENT):",
    ),
    "every subscriber has the whole of its session's room": (
        POLICIES,
        "conflation/sessions/queue_limits.py",
        "                feed.grown_messages + messages // len(subscribers),",
        "                feed.grown_messages + messages,",
    ),
    "what the socket holds is forgotten when alarms are set": (
        POLICIES,
        "conflation/sessions/queue_limits.py",
        (
            "        messages, size = session.limits.room("
            "queued, queued_bytes + session.unsent_bytes)"
        ),
        "        messages, size = session.limits.room(queued, queued_bytes)",
    ),
    "the lower threshold is told without the upper": (
        POLICIES,
        "conflation/sessions/queue_limits.py",
        "        session.is_crossed = upper",
        "        session.is_crossed = True",
    ),
    "an alarm rings one message late": (
        POLICIES,
        "conflation/topics/watermarks.py",
        "        while heap and heap[0][0] < grown:",
        "        while heap and heap[0][0] < grown - 1:",
    ),
    "always has a deadline but keeps a list": (
        POLICIES,
        "conflation/subscription.py",
        "        return not self.interval_ns and not self.always",
        "        return not self.interval_ns",
    ),
    "a session that is switched stays in its lane": (
        POLICIES,
        "conflation/sessions/lane_assignment.py",
        "                self.change(session, subscriber, subscription, now)",
        "                pass",
    ),
    "what was taken from a backlog comes again": (
        POLICIES,
        "conflation/lanes/member.py",
        "        for entry, _ in ordered[:count]:",
        "        for entry, _ in ordered[:0]:",
    ),
    "a piece of a backlog is a position": (
        POLICIES,
        "conflation/lanes/every_message.py",
        "            return member.position",
        "            return position",
    ),
    "a survivor has the last place where it has the first": (
        POLICIES,
        "conflation/definition.py",
        "        replaces=definition.replaces,",
        "        replaces=False,",
    ),
    "what is queued goes with the subscription that ends": (
        POLICIES,
        "conflation/sessions/registry.py",
        "            session.put(subscriber.drain(sums))",
        "            subscriber.drain(sums)",
    ),
    "what is still told to who has left does not count": (
        POLICIES,
        "conflation/sessions/session.py",
        "        queues += [drain.rows.queued() for drain in self.drains()]",
        "        queues += []",
    ),
    "a low priority is served while a high one waits": (
        POLICIES,
        "conflation/sessions/session.py",
        "                last_rank = _rank(subscriber)",
        "                pass",
    ),
}
