"""What requests did and which were refused, read from their answers for the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.access.audit import AuditLog, Kind
from tidegate.app.access.grants import Subject
from tidegate.app.http.internal_call import MARK
from tidegate.app.http.problems import STREAMS
from tidegate.app.http.requests import SESSIONS_PATH, TOPICS_PATH, has_ending, raw_path
from tidegate.app.http.rules import LOGIN, SESSION, TOPIC, rule_of
from tidegate.app.logs import shown_id
from tidegate.app.names import REVOKED, TOPIC_NAME
from tidegate.app.refusals import CODES

ENTRY: Final = "tidegate.audit"
"""The place in a request's scope where the guard and the login put the subject."""

PROBLEM_BYTES_MAX: Final = 4_096

CALLBACK: Final = LOGIN + "/callback"
"""The one GET that is an act: the end of a login at the identity provider."""

REVOKING: Final = f"{TOPICS_PATH.decode()}{REVOKED}/messages"
ACTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("PUT", TOPIC): "topic-defined",
    ("PATCH", TOPIC): "topic-changed",
    ("DELETE", TOPIC): "topic-deleted",
    ("DELETE", TOPIC + "/sow"): "records-removed",
    ("PATCH", SESSION): "session-changed",
    ("DELETE", SESSION): "session-closed",
    ("POST", LOGIN): "login",
    ("DELETE", LOGIN): "logout",
    ("GET", CALLBACK): "login",
    ("POST", "/v1/tickets"): "ticket-issued",
    ("POST", REVOKING): "revoked",
}
REFUSALS: Final = frozenset(
    {
        "unauthenticated",
        "forbidden",
        "csrf",
        "host-not-allowed",
        "origin-not-allowed",
        "limit-reached",
    }
)
STATUSES: Final = frozenset(CODES[code][0] for code in REFUSALS)


class Entry:
    """The subject of a request, and the code of a refusal that its answer does not show."""

    __slots__ = ("code", "sub")

    def __init__(self) -> None:
        self.sub = self.code = ""


def note_subject(scope: Scope, subject: Subject) -> None:
    """Let the event of this request name its subject."""
    entry: Entry | None = scope.get(ENTRY)
    if entry is not None:
        entry.sub = subject.sub


def note_code(scope: Scope, code: str) -> None:
    """Let the event of this request have the code of its refusal, which is a page for people."""
    entry: Entry | None = scope.get(ENTRY)
    if entry is not None:
        entry.code = code


class Audited:
    """Notes what requests did and which were refused; the outermost middleware.

    It reads answers: what refuses is in many places, and each answers with a problem.
    """

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, and note its answer."""
        # What another gateway forwards was noted there.
        if scope["type"] != "http" or MARK in scope:
            await self._app(scope, receive, send)
            return
        entry = scope[ENTRY] = Entry()
        status, body = 0, b""
        is_stream = has_ending(scope["path"], STREAMS)

        async def noted_send(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
                action = ACTIONS.get((scope["method"], _route(scope))) if status < 300 else None
                if action is not None:
                    self._log.act(_kind(scope, entry, action))
            elif status in STATUSES or (is_stream and not body):
                body += message.get("body", b"")[:PROBLEM_BYTES_MAX]
                code = entry.code or refused_code(body)
                if code in REFUSALS:
                    self._log.refuse(_kind(scope, entry, "refused", code))
                    status = 0
            await send(message)

        await self._app(scope, receive, noted_send)


def refused_code(body: bytes) -> str:
    """Return the code of a problem, as an answer or as the event of a stream; "" for neither."""
    if b"event: refused\n" in body:
        body = body.partition(b"\ndata: ")[2].split(b"\n")[0]
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    code = document.get("code") if isinstance(document, dict) else None
    return code if isinstance(code, str) else ""


def _route(scope: Scope) -> str:
    # Most requests read or publish.
    if scope["method"] not in _METHODS or (scope["method"] == "GET" and scope["path"] != CALLBACK):
        return ""
    rule = rule_of(scope["method"], raw_path(scope).decode("latin-1"))
    # To revoke is to administer, other publishing is not.
    return REVOKING if scope["path"] == REVOKING else "" if rule is None else rule.path


_METHODS: Final = frozenset(method for method, _ in ACTIONS)


def _kind(scope: Scope, entry: Entry, name: str, code: str = "") -> Kind:
    path, topic, session = raw_path(scope), "", ""
    if path.startswith(TOPICS_PATH) and code != "unauthenticated":
        text = _first_part(path, TOPICS_PATH)
        topic = text if TOPIC_NAME.fullmatch(text) else ""
    elif path.startswith(SESSIONS_PATH) and not code:
        session = shown_id(_first_part(path, SESSIONS_PATH))
    client: Sequence[Any] = scope.get("client") or ("",)
    return Kind(name, code, entry.sub, str(client[0]), topic, session)


def _first_part(path: bytes, prefix: bytes) -> str:
    return path.removeprefix(prefix).split(b"/", 1)[0].decode("latin-1")
