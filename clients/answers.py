"""Answers of a gateway taken apart: JSON objects, lines, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from tidegate.clients.errors import AnswerInvalid, GatewayProblem

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Journal:
    """What a topic's journal holds.

    `first` and `last` are bookmarks, None while it holds nothing; `epoch` is the topic's life.
    """

    epoch: str | None
    first: str | None
    last: str | None


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """Some topics, the address of the next page, the entity tag of this one."""

    topics: list[Fields]
    following: str | None
    etag: str


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish request did: how many messages, the bookmarks of the first and the last.

    With `duplicate` it had been sent before. A request with an idempotency key is then told what
    was published at that time; a numbered one that nothing was, without bookmarks.
    """

    topic: str
    messages: int
    first: str | None
    last: str | None
    duplicate: bool

    @classmethod
    def of(cls, answer: Fields) -> Published:
        """From a gateway's answer."""
        return cls(
            topic=answer["topic"],
            messages=answer["messages"],
            first=answer.get("first"),
            last=answer.get("last"),
            duplicate=bool(answer.get("duplicate")),
        )


def problem_of(answer: httpx2.Response) -> GatewayProblem:
    """A refusal from an answer that was read; its status speaks where no problem document came."""
    said = _decoded(answer.content) or {}
    retry_after = answer.headers.get("retry-after", "")
    in_seconds = retry_after.isascii() and retry_after.isdigit()
    return GatewayProblem(
        status=answer.status_code,
        code=str(said.get("code") or f"http-{answer.status_code}"),
        title=str(said.get("title") or answer.reason_phrase or "The gateway said no"),
        detail=str(said.get("detail") or ""),
        position=_whole(said.get("position")),
        line=_whole(said.get("line")),
        retry_after_s=float(retry_after) if in_seconds else None,
    )


def fields_of(answer: httpx2.Response) -> Fields:
    """The JSON object of an answer.

    Raises:
        AnswerInvalid: it has none.
    """
    fields = _decoded(answer.content)
    if fields is None:
        raise AnswerInvalid(f"{answer.request.url} did not answer as a Tidegate gateway does")
    return fields


def require_media_type(answer: httpx2.Response, *accepted: str) -> None:
    """Close and refuse an open answer whose content is of none of these types.

    Raises:
        AnswerInvalid: so it is; whatever answered is no gateway.
    """
    sent = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent not in accepted:
        answer.close()
        raise AnswerInvalid(
            f"{answer.request.url} answered {sent or 'nothing'}, not {accepted[0]}: "
            "it is no Tidegate gateway"
        )


def split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a body that arrives in pieces; blank ones are passed over."""
    pieces: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        if others:
            yield from filter(bytes.strip, [b"".join(pieces), *others[:-1]])
            pieces = [others[-1]]
    yield from filter(bytes.strip, [b"".join(pieces)])


def _decoded(content: bytes) -> Fields | None:
    try:
        return msgspec.json.decode(content, type=Fields)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _whole(number: object) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) else None
