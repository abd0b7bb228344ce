"""Requests to a gateway as data: what is sent, and how its answer is read.

Both clients send these, one waits in a thread and the other in a task; neither builds requests of
its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from tidegate.clients.answers import Fields, Published, TopicsPage, fields_of, foreign_answer
from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.message import line_of

JSON = "application/json"
NDJSON = "application/x-ndjson"
CREATED, NO_CONTENT, NOT_MODIFIED = 201, 204, 304
TOPICS_PER_PAGE = 1000  # the gateway's most
SESSIONS = "/v1/sessions"
MESSAGES_PER_PAGE = 10_000
SESSIONS_PER_PAGE = 1000

Result = TypeVar("Result")
KeyField = str | int | float | bool
RecordKey = KeyField | tuple[KeyField, ...]
"""A key of one field is that field, of several the tuple of them."""


@dataclass(frozen=True, slots=True)
class Request(Generic[Result]):
    """One request, and how its answer is read.

    Attributes:
        given: httpx2's arguments for headers, query and body.
        takes_effect_once: it may be repeated although an answer was lost.
    """

    method: str
    path: str
    read: Callable[[httpx2.Response], Result]
    given: Mapping[str, Any] = field(default_factory=dict)
    takes_effect_once: bool = False


@dataclass(frozen=True, slots=True)
class JournalPage:
    """A page of a topic's journal; the journal is read once a page is empty.

    Attributes:
        start: a bookmark, a time or `epoch`; None for the oldest message kept.
    """

    start: str | None

    @property
    def query(self) -> dict[str, str | int | None]:
        """The query of its request."""
        return {"from": self.start, "limit": MESSAGES_PER_PAGE}

    def following(self, newest: bytes) -> JournalPage | None:
        """Return the next page, after the last line of this one; None if this one has no line.

        Raises:
            AnswerInvalid: the line is no envelope.
        """
        if not newest:
            return None
        try:
            return JournalPage(msgspec.json.decode(newest, type=_Placed).bookmark)
        except msgspec.DecodeError:
            raise AnswerInvalid("a message of the journal is not an envelope") from None


class _Placed(msgspec.Struct):
    bookmark: str


@dataclass(frozen=True, slots=True)
class Defined:
    """A topic's definition and live figures, the definition's entity tag, and whether it is new."""

    document: Fields
    etag: str
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    """One request to publish: its body and its header."""

    body: bytes
    headers: Mapping[str, str]

    @classmethod
    def of(
        cls,
        lines: Iterable[bytes],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        idempotency_key: str | None = None,
        stage: str | None = None,
        media_type: str = NDJSON,
    ) -> Post:
        """Build a request of JSON texts without line breaks, or of one message as it is."""
        named = {
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": None if sequence is None else str(sequence),
            "Idempotency-Key": idempotency_key,
            "Tidegate-Stage": stage,
        }
        headers = {name: text for name, text in named.items() if text is not None}
        return cls(b"\n".join(lines), {"Content-Type": media_type, **headers})


def new_key() -> str:
    """Return a random key."""
    return secrets.token_urlsafe(16)


def topic_path(topic: str) -> str:
    """Return the path of a topic."""
    return f"/v1/topics/{quote(topic, safe='')}"


def request_of(**fields: str | None) -> dict[str, str]:
    """Return the fields of a request that are given: an absent one leaves the gateway's default."""
    return {name: text for name, text in fields.items() if text is not None}


def subscribing(
    options: str,
    filter_text: str | None,
    order_by: str | None,
    command: str | None,
    format_name: str | None,
) -> dict[str, str]:
    """Return the fields that a request to subscribe gives."""
    return request_of(
        options=options or None,
        filter=filter_text,
        order_by=order_by,
        command=command,
        format=format_name,
    )


# Topics


def topic(name: str) -> Request[Defined]:
    """Ask for a topic with its definition, live figures and entity tag."""
    return Request("GET", topic_path(name), _defined)


def topics_path(prefix: str = "") -> str:
    """Return the path of the first page of topics."""
    path = f"/v1/topics?limit={TOPICS_PER_PAGE}"
    return f"{path}&prefix={quote(prefix, safe='')}" if prefix else path


def topics_page(path: str, known: str = "") -> Request[TopicsPage | None]:
    """Ask for a page of topics; its answer is None if its entity tag is still `known`."""
    return Request("GET", path, _page, {"headers": {"If-None-Match": known} if known else {}})


def put_topic(
    name: str, definition: Fields, *, if_match: str | None = None, only_new: bool = False
) -> Request[Defined]:
    """Create a topic, or replace its definition; `only_new`: refuse one that is there."""
    # RFC 9110, 13.1.2: `*` matches whatever is there.
    headers = _match(if_match) | ({"If-None-Match": "*"} if only_new else {})
    return Request("PUT", topic_path(name), _defined, {"json": definition, "headers": headers})


def patch_topic(name: str, patch: Fields, *, if_match: str | None = None) -> Request[Defined]:
    """Change what a JSON Merge Patch names; None restores a default."""
    given = {"json": patch, "headers": _match(if_match)}
    return Request("PATCH", topic_path(name), _defined, given)


def delete_topic(name: str, *, if_match: str | None = None) -> Request[None]:
    """Delete a topic and its messages."""
    return Request("DELETE", topic_path(name), _nothing, {"headers": _match(if_match)})


# Messages


def publish(
    topic: str,
    post: Post,
    *,
    enveloped: bool = False,
    delta: bool = False,
    caller_retries: bool = False,
) -> Request[Published]:
    """Publish a body.

    `enveloped`: each of its lines is an envelope; `delta`: each is a patch of its record;
    `caller_retries`: the transport does not, unless it retries every request.
    """
    params = request_of(format="envelope" if enveloped else None, delta="true" if delta else None)
    given = {"content": post.body, "headers": post.headers, "params": params}
    path = f"{topic_path(topic)}/messages"
    return Request("POST", path, _published, given, takes_effect_once=not caller_retries)


def stage(topic: str, post: Post, *, enveloped: bool) -> Request[int]:
    """Store messages for a commit; the answer is their number."""
    path, params = f"{topic_path(topic)}/messages", {"format": "envelope"} if enveloped else None
    given = {"content": post.body, "headers": post.headers, "params": params}
    return Request("POST", path, _staged, given, takes_effect_once=True)


def commit(
    topic: str, producer: str, run: int, sequence: int, stages: Sequence[str], epoch: str | None
) -> Request[Published]:
    """Publish stages in one step."""
    document = {"producer": producer, "run": run, "sequence": sequence, "stages": list(stages)}
    if epoch is not None:
        document["epoch"] = epoch
    path = f"{topic_path(topic)}/commits"
    return Request("POST", path, _published, {"json": document}, takes_effect_once=True)


def delete_records(
    topic: str, record_key: RecordKey | None, filter_text: str | None
) -> Request[int]:
    """Delete the record of a key, or those that match a filter; the answer is their number."""
    is_whole = record_key is None or isinstance(record_key, tuple)
    fields = record_key if is_whole else (record_key,)
    text = None if fields is None else line_of(fields).decode()
    params = request_of(key=text, filter=filter_text)
    path = f"{topic_path(topic)}/sow"
    return Request("DELETE", path, _deleted, {"params": params})


# Subscriptions


def explain(topic: str, **request: str | None) -> Request[Fields]:
    """Ask what subscribing would do."""
    body = {"topic": topic, **request_of(**request)}
    return Request("POST", "/v1/explain", fields_of, {"json": body})


# Sessions


def open_session(limits: Fields | None, conflated: bool) -> Request[Fields]:
    """Open a session of many subscriptions."""
    body = {"conflated": conflated, **({} if limits is None else {"limits": limits})}
    return Request("POST", SESSIONS, _opened, {"json": body})


def about_session(
    session: str, method: str = "GET", path: str = "", document: Fields | None = None
) -> Request[Fields]:
    """Ask for, change or close a session, or one of its subscriptions at `path`."""
    given = {} if document is None else {"json": document}
    whole = f"{SESSIONS}/{quote(session, safe='')}{path}"
    read = {"DELETE": _emptied, "POST": _subscribed}.get(method, fields_of)
    return Request(method, whole, read, given)


def sessions_page(path: str | None = None) -> Request[Fields]:
    """Ask for a page of sessions, by default the first."""
    return Request("GET", path or f"{SESSIONS}?limit={SESSIONS_PER_PAGE}", fields_of)


def _defined(answer: httpx2.Response) -> Defined:
    document, etag = fields_of(answer), answer.headers.get("etag", "")
    return Defined(document, etag, answer.status_code == CREATED)


def _page(answer: httpx2.Response) -> TopicsPage | None:
    if answer.status_code == NOT_MODIFIED:
        return None
    page = fields_of(answer, "topics")
    return TopicsPage(page["topics"], page.get("next"), answer.headers.get("ETag", ""))


def _published(answer: httpx2.Response) -> Published:
    return Published.of(fields_of(answer, "topic", "messages"))


def _staged(answer: httpx2.Response) -> int:
    return int(fields_of(answer, "messages")["messages"])


def _opened(answer: httpx2.Response) -> Fields:
    return fields_of(answer, "session")


def _subscribed(answer: httpx2.Response) -> Fields:
    return fields_of(answer, "sub")


def _deleted(answer: httpx2.Response) -> int:
    found = fields_of(answer).get("deleted")
    if not isinstance(found, int):
        raise foreign_answer(answer)
    return found


def _nothing(answer: httpx2.Response) -> None:
    # A proxy or another server may say 200 to anything; nothing was deleted then.
    if answer.status_code != NO_CONTENT:
        raise foreign_answer(answer)


def _emptied(answer: httpx2.Response) -> Fields:
    _nothing(answer)
    return {}


def _match(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}
