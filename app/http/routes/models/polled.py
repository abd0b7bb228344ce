"""Polled streams, as they are shown."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict


class PolledStream(TypedDict):
    """A polled stream: the rows that equal requests read, and how these do."""

    topic: str
    options: Annotated[str, Field(description="As granted")]
    filter: str | None
    order_by: str | None
    format: Literal["state", "value"]
    interval_ms: Annotated[int, Field(description="0: every message")]
    opened_ms: Annotated[int, Field(description="When its first reader came")]
    requests: Annotated[int, Field(description="Since then, of readers or of caches before them")]
    answers: Annotated[int, Field(description="Of these requests, with rows")]
    sent_bytes: Annotated[int, Field(description="Bodies of these answers, as sent")]
    waiting: Annotated[int, Field(description="Requests that wait for a flush")]
    positions: Annotated[
        int,
        Field(
            description="Different ones at which requests wait, or were made from within the last"
            " interval (1 s at least); not more than about a thousand are counted"
        ),
    ]
    newest_age_ms: Annotated[
        int | None,
        Field(
            description="For how long there has been something after the newest of these positions;"
            " null: there is none, or the journal does not reach back to it"
        ),
    ]
    oldest_age_ms: Annotated[int | None, Field(description="The same of the oldest one")]
    gateway: str


class PolledStreams(TypedDict):
    """All polled streams, by topic."""

    streams: list[PolledStream]
    missing: NotRequired[
        Annotated[list[str], Field(description="Gateways that did not answer in time")]
    ]


ANSWERED = (PolledStreams,)
