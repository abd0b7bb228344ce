"""The data of the named events of a subscription's stream, and of its rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tidegate.app.delivery.notices import Cause
from tidegate.app.http.openapi import Problem, answer, events_of, ref
from tidegate.app.routes.models.messages import Envelope
from tidegate.app.routes.models.sessions import AutoInputs
from tidegate.conflation.auto import Reason
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.outputs import CloseReason, ResumeMode


class SubscribedEvent(TypedDict):
    """A subscription, or a topic of a pattern, that the stream has from now on."""

    sub: str
    topic: str
    options: str
    lane: str
    bookmark: NotRequired[
        Annotated[str | None, Field(description="Behind which its rows begin; null: otherwise")]
    ]


class HelloEvent(TypedDict):
    """The first event of a stream."""

    session: str
    epoch: Annotated[str | None, Field(description="Of the topic; null where there are several")]
    heartbeat_ms: int
    subscriptions: list[SubscribedEvent]


class OofEvent(TypedDict):
    """A record that is gone, or matches no more."""

    reason: RemovalReason
    key: list[Any] | None
    value: Annotated[Any, Field(description="As it last was; null if that is not known")]


class GroupEvent(TypedDict):
    """Around a snapshot."""

    sub: str
    topic: str
    rows: int


class ResumedEvent(TypedDict):
    """How a subscription goes on behind where its reader was."""

    sub: str
    topic: str
    mode: ResumeMode
    gap_messages: int | None
    gap_ms: int | None
    closed: Annotated[CloseReason | None, Field(description="Why the reader was sent away")]


class LateEvent(TypedDict):
    """Rows before it were older than `max_age`."""

    sub: str
    age_ms: int
    cause: Cause


class NoInputs(TypedDict):
    """A requested change has no figures."""


ConflationEvent = TypedDict(
    "ConflationEvent",
    {
        "sub": str,
        "topic": str,
        "from": str,
        "to": str,
        "reason": Reason | Literal["requested"],
        "inputs": AutoInputs | NoInputs,
    },
)
ConflationEvent.__doc__ = "Another interval, told before its first rows."


class ProgressEvent(TypedDict):
    """Nothing at or before the bookmark is still to come."""

    sub: str
    topic: str
    bookmark: str


class UnsubscribedEvent(TypedDict):
    """The end of a subscription, or of a topic of a pattern."""

    sub: str
    topic: str
    reason: Literal["REQUESTED", "REMOVED", "UNUSABLE", "BACK_PRESSURE"]


class StatusEvent(TypedDict):
    """The bus or the store is out since, or back (null)."""

    source: str
    stale_since: str | None


class ErrorEvent(Problem):
    """A problem; with `sub` and `topic` one that a pattern has passed over."""

    sub: NotRequired[str]
    topic: NotRequired[str]


class GoodbyeEvent(TypedDict):
    """The last event."""

    reason: CloseReason
    reconnect: bool


class BatchEvent(TypedDict):
    """The rows of one flush, in format batch."""

    sub: NotRequired[Annotated[str, Field(description="In a session of several")]]
    topic: str
    rows: list[Envelope]


DELTA = {"description": "A JSON Merge Patch with the key fields"}
EVENTS = {
    "hello": ref(HelloEvent),
    "subscribed": ref(SubscribedEvent),
    "delta": DELTA,
    "oof": ref(OofEvent),
    "group_begin": ref(GroupEvent),
    "group_end": ref(GroupEvent),
    "resumed": ref(ResumedEvent),
    "late": ref(LateEvent),
    "conflation": ref(ConflationEvent),
    "progress": ref(ProgressEvent),
    "unsubscribed": ref(UnsubscribedEvent),
    "status": ref(StatusEvent),
    "error": ref(ErrorEvent),
    "goodbye": ref(GoodbyeEvent),
}
ROWS = {"anyOf": [ref(BatchEvent), ref(Envelope), {"description": "The message as published"}]}
STREAM: dict[int | str, dict[str, Any]] = {
    200: answer("Server-sent events; unnamed ones are rows", content=events_of(EVENTS, ROWS)),
    204: answer("The subscription has ended; do not come back"),
}
ANSWERED = (
    HelloEvent, SubscribedEvent, OofEvent, GroupEvent, ResumedEvent, LateEvent, ConflationEvent,
    ProgressEvent, UnsubscribedEvent, StatusEvent, ErrorEvent, GoodbyeEvent, BatchEvent,
)  # fmt: skip
