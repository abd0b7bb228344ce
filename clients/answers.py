"""Answers of a gateway: JSON objects, lines, results of a publish, refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from tidegate.clients.errors import FOREIGN, AnswerInvalid, GatewayProblem

Fields = dict[str, Any]
PROBLEM = "application/problem+json"
_USER = re.compile(r"//[^/@]*@")


@dataclass(frozen=True, slots=True)
class Journal:
    """The ends of a topic's journal.

    `first` and `last` are bookmarks, None while it is empty; `epoch` is the topic's. It continues
    other epochs up to an offset each: their bookmarks up to there are valid.
    """

    epoch: str | None
    first: str | None
    last: str | None
    continues: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """A page of topics, the address of the next page, and the entity tag of this one."""

    topics: list[Fields]
    following: str | None
    etag: str


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish: number of messages, bookmarks of the first and the last.

    With `duplicate` the request had been published before. The result of one with an idempotency
    key is then the first one's; a numbered one has no messages and no bookmarks, but the highest
    `sequence` of its producer. `unmatched_removals` is how many removals found no record.
    """

    topic: str
    messages: int
    first: str | None
    last: str | None
    duplicate: bool
    sequence: int | None = None
    unmatched_removals: int = 0

    @classmethod
    def of(cls, answer: Fields) -> Published:
        """Read a gateway's answer."""
        return cls(
            topic=answer["topic"],
            messages=answer["messages"],
            first=answer.get("first"),
            last=answer.get("last"),
            duplicate=bool(answer.get("duplicate")),
            sequence=answer.get("sequence"),
            unmatched_removals=answer.get("unmatched_removals", 0),
        )


def problem_of(answer: httpx2.Response) -> GatewayProblem:
    """Return the refusal in an answer; one that is no gateway's has a code of its status.

    Proxies and API gateways refuse in JSON, too, some with a member `code`: the media type tells.
    """
    said = (_decoded(answer.content) or {}) if media_type_of(answer) == PROBLEM else {}
    if not isinstance(said.get("code"), str):
        said = {}
    request = answer.request
    is_subscribing = request.method == "POST" and request.url.path.endswith("/subscriptions")
    asked = _decoded(request.content) if is_subscribing else None
    about = about_of(request.url.path) if asked is None else f"topic {asked.get('topic')}"
    given = {"title": answer.reason_phrase, **said, "status": answer.status_code}
    # Seconds only: a gateway sends no date, and a proxy's clock may differ from ours.
    retry_after = answer.headers.get("retry-after", "")
    in_seconds = retry_after.isascii() and retry_after.isdigit()
    return problem_from(given, about, float(retry_after) if in_seconds else None)


def problem_from(
    document: Mapping[str, Any], about: str = "", retry_after_s: float | None = None
) -> GatewayProblem:
    """Return the refusal of a problem document, which an event `refused` may be, too."""
    status = _whole(document.get("status")) or 503
    return GatewayProblem(
        status=status,
        code=str(document.get("code") or f"{FOREIGN}{status}"),
        title=str(document.get("title") or "The gateway refused"),
        detail=str(document.get("detail") or ""),
        position=_whole(document.get("position")),
        line=_whole(document.get("line")),
        retry_after_s=retry_after_s,
        about=about,
        pointer=str(document.get("pointer") or ""),
    )


def about_of(path: str) -> str:
    """Return what the path of a request names: a topic, a record, a session, a subscription."""
    match path.removeprefix("/v1/").split("/"):
        case ["topics", topic, "sow", record]:
            return f"record {record} of topic {topic}"
        case ["topics", topic, *_]:
            return f"topic {topic}"
        case ["sessions", session, "subscriptions", sub, *_]:
            return f"subscription {sub} of session {session}"
        case ["sessions", session, *_]:
            return f"session {session}"
    return ""


def fields_of(answer: httpx2.Response, *required: str) -> Fields:
    """Return the JSON object of an answer.

    Raises:
        AnswerInvalid: the answer has none, or it lacks a required member.
    """
    fields = _decoded(answer.content)
    if fields is None or not fields.keys() >= set(required):
        raise foreign_answer(answer)
    return fields


def foreign_answer(answer: httpx2.Response) -> AnswerInvalid:
    """Return the error of an answer that is not one of a gateway."""
    asked = shown_address(str(answer.request.url))
    return AnswerInvalid(f"{asked} did not answer as a Tidegate gateway does")


def shown_address(address: str) -> str:
    """Return an address for an error, which ends in logs: without user and password."""
    return _USER.sub("//", address)


def require_media_type(answer: httpx2.Response, *accepted: str) -> None:
    """Refuse an answer whose content is of none of these types; its owner closes it.

    Raises:
        AnswerInvalid: another type, so the answer is not one of a gateway.
    """
    sent = media_type_of(answer)
    if sent not in accepted:
        raise AnswerInvalid(
            f"{shown_address(str(answer.request.url))} sent {sent or 'no Content-Type'}, "
            f"not {accepted[0]}: "
            "it is not a Tidegate gateway"
        )


def media_type_of(answer: httpx2.Response) -> str:
    """Return the media type of an answer without parameters; empty without one."""
    sent: str = answer.headers.get("content-type", "")
    return sent.partition(";")[0].strip().lower()


class Lines:
    """Splits a body that arrives in pieces into its lines; blank lines are skipped."""

    def __init__(self) -> None:
        # A list, joined at the end of a line: adding to bytes would copy a long line each time.
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Return the lines that these bytes complete."""
        first, *others = chunk.split(b"\n")
        self._pieces.append(first)
        if not others:
            return iter(())
        whole = [b"".join(self._pieces), *others[:-1]]
        self._pieces = [others[-1]]
        return filter(bytes.strip, whole)

    def rest(self) -> Iterator[bytes]:
        """Return the last line, which no line feed ends."""
        return filter(bytes.strip, [b"".join(self._pieces)])


def _decoded(content: bytes) -> Fields | None:
    try:
        return msgspec.json.decode(content, type=Fields)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _whole(number: object) -> int | None:
    # True is an int to Python, and no position.
    return number if isinstance(number, int) and not isinstance(number, bool) else None
