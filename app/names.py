"""Names of topics, sessions and subscriptions, and patterns of topics."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.app.refusals import Refused

TOPIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
OWN_PREFIX = "tidegate."
REVOKED = OWN_PREFIX + "revoked"
"""The topic of revoked subjects and tokens: the only own one that outlives its gateway."""

SESSION_ID = r"(?:[A-Za-z0-9_-]{1,32}\.)?[A-Za-z0-9_-]{1,64}"
"""Where gateways share a bus, a session's id begins with that of the gateway that opened it."""

_SESSION_ID = re.compile(SESSION_ID, re.ASCII)
SUBSCRIPTION_NAME = r"[A-Za-z0-9_-]{1,64}"
_SUBSCRIPTION_NAME = re.compile(SUBSCRIPTION_NAME, re.ASCII)
PATTERN_LENGTH_MAX = 255
_LITERAL = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)


def checked_topic_name(name: str) -> str:
    """Return a name that is a topic's.

    Raises:
        Refused: topic-invalid.
    """
    if not TOPIC_NAME.fullmatch(name):
        raise Refused(
            "topic-invalid",
            "A topic's name is 1 to 255 of A-Z a-z 0-9 . _ - and starts with a letter or digit.",
        )
    return name


def checked_writable_name(name: str) -> str:
    """Return a name that is that of a topic which clients may change.

    Raises:
        Refused: topic-invalid or topic-read-only.
    """
    if checked_topic_name(name).startswith(OWN_PREFIX):
        raise Refused("topic-read-only", "Topics whose name starts with tidegate. are read-only.")
    return name


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Matches the topics of a subscription, present ones and later ones.

    The gateway's own topics match only a pattern that begins with their prefix.
    """

    text: str
    expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        """Parse a pattern.

        Raises:
            Refused: topic-invalid.
        """
        *leading, last = text.split(".")
        parts = [_part(part) for part in leading]
        # `.+` and not `.*`: `px.>` is everything below px, and not px itself.
        parts.append(".+" if last == ">" else _part(last))
        if len(text) > PATTERN_LENGTH_MAX:
            raise Refused(
                "topic-invalid", f"A pattern has at most {PATTERN_LENGTH_MAX} characters."
            )
        return cls(text, re.compile(r"\.".join(parts), re.ASCII))

    def matches(self, topic: str) -> bool:
        """Return True if the pattern matches the topic."""
        # A subscriber to `>` wants the publishers' topics; the gateway's own would loop its reports
        # back.
        if topic.startswith(OWN_PREFIX) and not self.text.startswith(OWN_PREFIX):
            return False
        return self.expression.fullmatch(topic) is not None

    def covers(self, other: str) -> bool:
        """Return True if every topic of another pattern, or of a name, is one of this pattern."""
        # Only a wildcard matches a wildcard, and `*` one part, which `>` is not.
        return self.matches(other) and (not other.endswith(">") or self.text.endswith(">"))


def _part(part: str) -> str:
    if part == "*":
        return r"[^.]+"
    if not _LITERAL.fullmatch(part):
        raise Refused(
            "topic-invalid", "In a pattern * is one whole part between dots, > the last one."
        )
    return re.escape(part)


def checked_subscription_name(name: str) -> str:
    """Return a name that a subscription may have.

    Raises:
        Refused: subscription-unknown.
    """
    if not _SUBSCRIPTION_NAME.fullmatch(name):
        raise Refused("subscription-unknown", "The session has no such subscription.")
    return name


def checked_session_id(text: str, code: str, detail: str) -> str:
    """Return a text that may be the id of a session; raise a problem with `code` for another."""
    if not _SESSION_ID.fullmatch(text):
        raise Refused(code, detail)
    return text
