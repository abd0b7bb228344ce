"""The audit log: administration and refusals, in a topic of the gateway's own and in a file.

What is alike within a second is one event with a count, and of different ones there are only so
many a second: a flood of refused requests costs neither the disk nor the loop. No event has a
token, a ticket, a query, a key or a payload.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.access.grants import Subject
from tidegate.app.access.rules import LOGIN, SESSION, TOPIC, rule_of
from tidegate.app.http.internal_call import MARK
from tidegate.app.http.problems import STREAMS
from tidegate.app.http.requests import SESSIONS_PATH, TOPICS_PATH, raw_path
from tidegate.app.logs import event, shown_id
from tidegate.app.names import REVOKED, TOPIC_NAME
from tidegate.app.refusals import CODES
from tidegate.app.settings.settings import SettingsInvalid

logger = logging.getLogger("tidegate.audit")

ENTRY: Final = "tidegate.audit"
"""The place in a request's scope where the guard and the login put the subject."""

WRITE_EVERY_S: Final = 1.0
ACTIONS_MAX: Final = 1_000
"""Different acts of administration in a second; those beyond are counted together."""
REFUSALS_MAX: Final = 10
"""Different refusals in a second; those beyond are counted together."""
KEPT_LINES_MAX: Final = 10_000
"""Lines that wait for a file which cannot be written."""
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
    {"unauthenticated", "forbidden", "csrf", "host-not-allowed", "origin-not-allowed",
     "limit-reached"}
)  # fmt: skip
STATUSES: Final = frozenset(CODES[code][0] for code in REFUSALS)


class Kind(NamedTuple):
    """What makes events alike; "" where something is not known or does not matter."""

    event: str
    code: str = ""
    sub: str = ""
    client: str = ""
    topic: str = ""
    session: str = ""
    detail: str = ""


class AuditLog:
    """Counts events, and writes them once a second.

    Args:
        file: lines are appended there; it is opened for each write, so that it may be rotated.
        publish: puts an event into the topic.
        wall_ms: the time of events.
        gateway: the id of this gateway.

    Raises:
        SettingsInvalid: the file cannot be written.
    """

    def __init__(
        self,
        file: str | None,
        publish: Callable[[bytes], None],
        wall_ms: Callable[[], int],
        gateway: str,
    ) -> None:
        self._file = None if file is None else Path(file)
        self._publish = publish
        self._wall_ms = wall_ms
        self._gateway = gateway
        self._actions: Counter[Kind] = Counter()
        self._refusals: Counter[Kind] = Counter()
        self._lines: deque[bytes] = deque(maxlen=KEPT_LINES_MAX)
        self._is_failing = False
        self._writing = asyncio.Lock()
        if file is not None:
            try:
                _append(Path(file), b"")
            except OSError as error:
                raise SettingsInvalid(f"audit_log: {error.strerror or error}") from None

    def act(self, kind: Kind) -> None:
        """Note an act of administration."""
        _count(self._actions, kind, ACTIONS_MAX)

    def refuse(self, kind: Kind) -> None:
        """Note a refusal."""
        _count(self._refusals, kind, REFUSALS_MAX)

    async def run(self) -> None:
        """Write what was noted, once a second, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write what was noted since the last call."""
        noted = [*self._actions.items(), *self._refusals.items()]
        self._actions.clear()
        self._refusals.clear()
        at_ms = self._wall_ms()
        for kind, count in noted:
            shown = {name: value for name, value in kind._asdict().items() if value}
            document = {"at_ms": at_ms, **shown, "count": count, "gateway": self._gateway}
            line = msgspec.json.encode(document)
            self._publish(line)
            if self._file is not None:
                self._lines.append(line + b"\n")
        # One write at a time, or two would write the same lines.
        async with self._writing:
            if self._lines:
                await self._write_lines()

    async def _write_lines(self) -> None:
        assert self._file is not None
        lines = list(self._lines)
        try:
            # In a thread: a disk may be slow, and nobody waits for it.
            await asyncio.to_thread(_append, self._file, b"".join(lines))
        except OSError as error:
            if not self._is_failing:
                reason = error.strerror or str(error)
                figures = event("audit-not-written", reason=reason)
                logger.error("the audit log waits: %s", reason, extra=figures)
            self._is_failing = True
            return
        for _ in lines:
            self._lines.popleft()
        if self._is_failing:
            logger.info("the audit log is written again", extra=event("audit-written"))
        self._is_failing = False


def _count(noted: Counter[Kind], kind: Kind, most: int) -> None:
    if kind not in noted and len(noted) >= most:
        kind = Kind(kind.event, kind.code, detail="others")
    noted[kind] += 1


def _append(file: Path, lines: bytes) -> None:
    # For its owner alone: names of subjects and topics are not for everybody on the machine.
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if lines and os.write(descriptor, lines) < len(lines):
            raise OSError(errno.ENOSPC, "not all of it could be written")
    finally:
        os.close(descriptor)


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
    """Notes what requests did and which were refused; the outermost layer.

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
        is_stream = scope["path"].endswith(STREAMS)

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
