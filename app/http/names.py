"""Topic patterns: `px.*.eu`, `px.>`. A part that is `*` is one part, a last `>` the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.types import Scope

from tidegate.app.http.problems import Problem
from tidegate.app.http.requests import OWN_PREFIX, TOPICS_PATH, checked_topic_name, raw_path

LENGTH_MAX = 255
_LITERAL = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
_ENCODED = re.compile(rb"%(2a|3e)", re.IGNORECASE)


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
            Problem: topic-invalid.
        """
        *leading, last = text.split(".")
        parts = [_part(part) for part in leading]
        parts.append(".+" if last == ">" else _part(last))
        if len(text) > LENGTH_MAX:
            raise Problem("topic-invalid", f"A pattern has at most {LENGTH_MAX} characters.")
        return cls(text, re.compile(r"\.".join(parts), re.ASCII))

    def matches(self, topic: str) -> bool:
        """Return True if the pattern matches the topic."""
        if topic.startswith(OWN_PREFIX) and not self.text.startswith(OWN_PREFIX):
            return False
        return self.expression.fullmatch(topic) is not None


def topic_or_pattern(scope: Scope) -> str | TopicPattern:
    """Parse the topic of the path `/v1/topics/{topic}/…`; `*` and `>` may be percent-encoded.

    Raises:
        Problem: topic-invalid.
    """
    part = raw_path(scope).removeprefix(TOPICS_PATH).split(b"/", 1)[0]
    text = _ENCODED.sub(lambda code: b"*" if code[1].lower() == b"2a" else b">", part)
    name = text.decode("latin-1")
    if "*" in name or ">" in name:
        return TopicPattern.parse(name)
    return checked_topic_name(name)


def _part(part: str) -> str:
    if part == "*":
        return r"[^.]+"
    if not _LITERAL.fullmatch(part):
        raise Problem(
            "topic-invalid", "In a pattern * is one whole part between dots, > the last one."
        )
    return re.escape(part)
