"""Counters as frozen values; they add up (see `SubscriptionStats`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription since it joined: matched = delivered + conflated + waiting."""

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
    bytes_in: int
    keys: int
    boards: int
    lanes: int
    subscriptions: int
    matched: int
    delivered: int
    conflated: int
    waiting: int
    dropped: int
    """Rows that were waiting when their subscription ended."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """All topics and the number of sessions."""

    sessions: int
    flushes: int
    topics: tuple[TopicStats, ...]
