"""Publishing that may be sent again: what it sends, and what it is answered."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.clients.answers import Fields

NDJSON = "application/x-ndjson"


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
        """Of JSON texts without line breaks, or of one message as it is."""
        named = {
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": None if sequence is None else str(sequence),
            "Idempotency-Key": idempotency_key,
            "Tidegate-Stage": stage,
        }
        headers = {name: text for name, text in named.items() if text is not None}
        return cls(b"\n".join(lines), {"Content-Type": media_type, **headers})


def new_key() -> str:
    """A key that no other request has."""
    return secrets.token_urlsafe(16)
