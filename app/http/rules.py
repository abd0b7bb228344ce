"""What each route needs: one table, which a test compares with `/openapi.json`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.app.http.problems import STREAMS
from tidegate.app.http.requests import has_ending


class Need(StrEnum):
    """What a route asks of a subject."""

    NOTHING = "nothing"
    """Open to everybody: health, pages and the login."""
    SUBJECT = "subject"
    """Any subject: the route shows and takes only what its grants allow."""
    OWNER = "owner"
    """The subject that opened the session."""
    VIEWER = "viewer"
    """The subject that opened the session, or one that may observe."""
    READ = "read"
    """To read the topic in the path, or some of the topics of the pattern there."""
    WHOLE = "whole"
    """To read all rows and fields of the topic in the path."""
    WRITE = "write"
    """To publish to the topic in the path."""
    REMOVE = "remove"
    """To write the topic, and to read all of it: the number of removed records is an answer."""
    ADMIN = "admin"
    """To define the topic in the path."""
    DEFINITION = "definition"
    """To read all of the topic, or to define it: its figures count hidden rows."""
    OBSERVE = "observe"
    """To look at lanes, metrics and traces."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What requests of one method and path need; `{…}` is one step of the path, `{…:path}` more."""

    method: str
    path: str
    need: Need

    def matches(self, path: str) -> bool:
        """Return True if the path is one of this rule."""
        return _compiled(self.path).fullmatch(path) is not None


TOPIC = "/v1/topics/{topic}"
SESSION = "/v1/sessions/{session}"
SUBSCRIPTION = SESSION + "/subscriptions/{sub}"
LOGIN = "/v1/login"

RULES: Final = (
    Rule("GET", "/v1/topics", Need.SUBJECT),
    Rule("GET", TOPIC, Need.DEFINITION),
    Rule("PUT", TOPIC, Need.ADMIN),
    Rule("PATCH", TOPIC, Need.ADMIN),
    Rule("DELETE", TOPIC, Need.ADMIN),
    Rule("POST", TOPIC + "/messages", Need.WRITE),
    Rule("GET", TOPIC + "/messages", Need.WHOLE),
    Rule("POST", TOPIC + "/commits", Need.WRITE),
    Rule("GET", TOPIC + "/sow", Need.READ),
    Rule("GET", TOPIC + "/sow/{record_key:path}", Need.READ),
    Rule("DELETE", TOPIC + "/sow", Need.REMOVE),
    Rule("GET", TOPIC + "/stream", Need.READ),
    Rule("GET", TOPIC + "/subscribe", Need.READ),
    Rule("POST", TOPIC + "/subscribe", Need.READ),
    Rule("POST", "/v1/sessions", Need.SUBJECT),
    Rule("GET", "/v1/sessions", Need.SUBJECT),
    Rule("GET", SESSION, Need.VIEWER),
    Rule("PATCH", SESSION, Need.OWNER),
    Rule("DELETE", SESSION, Need.OWNER),
    Rule("GET", SESSION + "/events", Need.OWNER),
    Rule("POST", SESSION + "/subscriptions", Need.OWNER),
    Rule("GET", SESSION + "/subscriptions", Need.VIEWER),
    Rule("GET", SUBSCRIPTION, Need.VIEWER),
    Rule("PATCH", SUBSCRIPTION, Need.OWNER),
    Rule("DELETE", SUBSCRIPTION, Need.OWNER),
    Rule("GET", SUBSCRIPTION + "/auto", Need.VIEWER),
    Rule("GET", SUBSCRIPTION + "/trace", Need.OBSERVE),
    Rule("POST", "/v1/explain", Need.SUBJECT),
    Rule("GET", "/v1/lanes", Need.OBSERVE),
    Rule("GET", "/v1/polled", Need.OBSERVE),
    Rule("GET", "/metrics", Need.OBSERVE),
    Rule("GET", "/v1/history", Need.OBSERVE),
    Rule("POST", LOGIN, Need.NOTHING),
    Rule("GET", LOGIN, Need.SUBJECT),
    Rule("DELETE", LOGIN, Need.NOTHING),
    Rule("GET", LOGIN + "/start", Need.NOTHING),
    Rule("GET", LOGIN + "/callback", Need.NOTHING),
    Rule("POST", "/v1/tickets", Need.SUBJECT),
    Rule("GET", "/openapi.json", Need.SUBJECT),
    Rule("GET", "/healthz", Need.NOTHING),
    Rule("GET", "/readyz", Need.NOTHING),
    Rule("GET", "/", Need.NOTHING),
    Rule("GET", "/console", Need.NOTHING),
    Rule("GET", "/docs", Need.NOTHING),
    Rule("GET", "/static/{file:path}", Need.NOTHING),
    Rule("GET", "/client.js", Need.NOTHING),
    Rule("GET", "/client/{file:path}", Need.NOTHING),
)

_SLOT = re.compile(r"\{\w+(:path)?\}")
_COMPILED: dict[str, re.Pattern[str]] = {}


def _compiled(path: str) -> re.Pattern[str]:
    found = _COMPILED.get(path)
    if found is None:
        # The text around the slots is ours: letters, slashes and a dot.
        pattern = _SLOT.sub(lambda slot: ".*" if slot[1] else "[^/]+", path.replace(".", r"\."))
        found = _COMPILED[path] = re.compile(pattern, re.DOTALL)
    return found


def rule_of(method: str, path: str) -> Rule | None:
    """Return the rule of a request; None for one that no rule names, which is refused.

    Args:
        method: the request's method; HEAD asks as GET does.
        path: the path as it was sent: decoding it could lead to another route.
    """
    wanted = "GET" if method == "HEAD" else method
    return next((it for it in RULES if it.method == wanted and it.matches(path)), None)


def methods_of(path: str) -> str:
    """Return the methods for which rules name the path, as the header Allow; empty for none."""
    methods = {it.method for it in RULES if it.matches(path)}
    # A stream has no end, and HEAD would wait for it.
    if "GET" in methods and not has_ending(path, STREAMS):
        methods.add("HEAD")
    return ", ".join(sorted(methods))
