"""Errors of the engine. Each leaf has the stable problem code that users see.

EngineError
|- OptionsInvalid       an options string, command or interval, with its position
|- TopicUnknown         no topic of that name
|- SessionUnknown       no session of that id, or one that has ended
|- SubscriptionUnknown  no subscription of that id in the session
|- BookmarkExpired      the journal no longer reaches back that far
`- LimitReached         a bound on sessions, subscriptions or keys
"""

from __future__ import annotations

from tidegate.keys.errors import Refusal


class EngineError(Refusal, ValueError):
    """Base of everything that the engine raises for a caller's mistake."""


class OptionsInvalid(EngineError):
    """An option is unknown, repeated, malformed or in conflict; `position` says where."""

    code = "options-invalid"


class TopicUnknown(EngineError):
    """No topic has that name."""

    code = "topic-unknown"


class SessionUnknown(EngineError):
    """No session has that id."""

    code = "session-unknown"


class SubscriptionUnknown(EngineError):
    """The session has no subscription of that id."""

    code = "subscription-unknown"


class BookmarkExpired(EngineError):
    """The bookmark is of another epoch, ahead of the topic, or older than the journal reaches."""

    code = "bookmark-expired"


class LimitReached(EngineError):
    """One of the bounds on sessions, subscriptions or keys."""

    code = "limit-reached"
