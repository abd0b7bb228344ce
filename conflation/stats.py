"""Counters as frozen values; they add up (see `SubscriptionStats`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription since it joined: matched = delivered + conflated + waiting.

    Of the values published meanwhile each was matched or filtered.
    """

    name: str
    topic: str
    lane: str
    matched: int
    """Messages published since the join that it asked for."""
    delivered: int
    """Live rows taken; snapshot and resume rows are not counted."""
    conflated: int
    """Messages replaced by a newer one of their key before they were due."""
    waiting: int
    """Rows still to come if nothing more is published."""
    filtered: int = 0
    """Messages published since the join that it did not ask for."""


@dataclass(frozen=True, slots=True)
class SessionStats:
    """One session and its subscriptions."""

    session: str
    queued_messages: int
    """What `conflation=none` subscriptions have waiting; intervals queue nothing."""
    queued_bytes: int
    subscriptions: tuple[SubscriptionStats, ...]


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic since it was made: matched = delivered + conflated + dropped + waiting.

    The sums are over its subscriptions, past ones included.
    """

    topic: str
    messages_in: int
    """Removals included: they have their place in the sequence."""
    removals_in: int
    bytes_in: int
    keys: int
    boards: int
    lanes: int
    subscriptions: int
    offered: int
    """Values published while a subscription was there, once for each: matched + filtered."""
    filtered: int
    matched: int
    delivered: int
    conflated: int
    waiting: int
    dropped: int
    """Rows that were waiting when their subscription ended."""
    dropped_by: tuple[tuple[str, int], ...] = ()
    """The same by reason: why the subscription or its session ended."""
    journal_messages: int = 0
    journal_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reliefs:
    """What became of full queues, and of long ones in idle time."""

    forced: int = 0
    """Queues that were conflated because a message would have breached their limit."""
    background: int = 0
    """Parts of queues that were conflated in idle time."""
    unsubscribed: int = 0
    """Subscriptions that ended with BACK_PRESSURE."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Topics, the number of sessions, and what happened to subscriptions."""

    sessions: int
    flushes: int
    topics: tuple[TopicStats, ...]
    reliefs: Reliefs = Reliefs()
    unsubscribed: Mapping[str, int] = field(default_factory=dict)
    """Ends of subscriptions that their sessions were told, by reason."""
    resumed: Mapping[str, int] = field(default_factory=dict)
    """Subscriptions that went on from a bookmark, by mode."""
