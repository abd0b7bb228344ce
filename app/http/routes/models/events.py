"""The data of events: of a subscription's stream, its rows, and traces."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tidegate.app.http.openapi import Problem, answer, events_of, ref
from tidegate.app.http.routes.models.messages import Envelope
from tidegate.app.http.routes.models.sessions import AutoInputs
from tidegate.app.streams.notices import Cause
from tidegate.conflation.auto import Reason
from tidegate.conflation.definition import Kind, QueuePolicy
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.outputs import CloseReason, ResumeMode
from tidegate.conflation.subscription import Command, NotFound
from tidegate.conflation.tracing.decisions import DecisionKind


class SubscribedEvent(TypedDict):
    """A subscription, or a topic of a pattern, that the stream has from now on."""

    sub: str
    topic: str
    options: str
    lane: str
    bookmark: NotRequired[
        Annotated[
            str | None,
            Field(description="Its rows begin after this; null: a snapshot or replay comes first"),
        ]
    ]


class HelloEvent(TypedDict):
    """The first event of a stream."""

    session: str
    epoch: Annotated[
        str | None, Field(description="The topic's epoch; null where there are several")
    ]
    heartbeat_ms: int
    subscriptions: list[SubscribedEvent]


class OofEvent(TypedDict):
    """A record that was removed or no longer matches."""

    reason: RemovalReason
    key: list[Any] | None
    value: Annotated[Any, Field(description="The last value; null if unknown")]


class GroupEvent(TypedDict):
    """The begin or the end of a snapshot."""

    sub: str
    topic: str
    rows: int


class ResumedEvent(TypedDict):
    """A subscription that continues after its reader's position, and in which mode."""

    sub: str
    topic: str
    mode: ResumeMode
    gap_messages: int | None
    gap_ms: int | None
    not_found: Annotated[
        NotFound | None,
        Field(description="What stands in for messages that are missing; null: none are"),
    ]
    closed: Annotated[CloseReason | None, Field(description="Why the previous stream ended")]


class LateEvent(TypedDict):
    """Rows before it were older than `max_age`."""

    sub: str
    age_ms: int
    cause: Cause


class NoInputs(TypedDict):
    """A requested change has no figures."""


# Written as a call because `from` is a keyword of Python.
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
ConflationEvent.__doc__ = "Another interval, before its first rows."


class ProgressEvent(TypedDict):
    """Nothing at or before the bookmark is still to come."""

    sub: str
    topic: str
    bookmark: str


class UnsubscribedEvent(TypedDict):
    """The end of a subscription, or of a topic of a pattern."""

    sub: str
    topic: str
    reason: Literal[
        "REQUESTED", "REMOVED", "UNUSABLE", "BACK_PRESSURE", "AUTHORIZATION", "BOOKMARK_EXPIRED"
    ]


class StatusEvent(TypedDict):
    """The bus or the store is unavailable since this time; null: it is back."""

    source: str
    stale_since: str | None


class RefusedEvent(Problem):
    """A problem; with `sub` and `topic`, the topic that a pattern left out."""

    sub: NotRequired[str]
    topic: NotRequired[str]


class GoodbyeEvent(TypedDict):
    """The last event."""

    reason: CloseReason
    reconnect: bool


class BatchEvent(TypedDict):
    """The rows of one flush, or of a part of a large one, in format batch."""

    sub: NotRequired[Annotated[str, Field(description="Only in a session")]]
    topic: str
    rows: list[Envelope]
    more: NotRequired[Annotated[bool, Field(description="True: the flush goes on")]]


DELTA = {"description": "A JSON Merge Patch with the key fields"}
EVENTS = {
    "hello": ref(HelloEvent),
    "subscribed": ref(SubscribedEvent),
    # A schema cannot tell a patch of any message from other JSON.
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
    # Not "error": browsers would mix it up with their own event for a lost connection.
    "refused": ref(RefusedEvent),
    "goodbye": ref(GoodbyeEvent),
}
ROWS = {"anyOf": [ref(BatchEvent), ref(Envelope), {"description": "The message as published"}]}
STREAM: dict[int | str, dict[str, Any]] = {
    200: answer("Server-sent events; unnamed ones are rows", content=events_of(EVENTS, ROWS)),
    # The only answer after which a browser's EventSource does not come back.
    204: answer("The subscription has ended; do not come back"),
}

# Traces.

AtMs = Annotated[float, Field(ge=0, description="ms since the trace began")]


class TracedDefinition(TypedDict):
    """The part of a topic's definition that influences decisions."""

    key: list[str]
    type: Kind
    conflation: QueuePolicy


class TracedMessage(TypedDict):
    """A message, or a removal."""

    offset: int
    key: list[Any] | None
    value: NotRequired[Any]
    removed: NotRequired[RemovalReason]
    exempt: NotRequired[Literal[True]]


class TracedRow(TypedDict):
    """A row, and how many messages it stands for."""

    offset: int
    messages: int


class CallEvent(TypedDict):
    """A call to the engine; its fields depend on `call`."""

    at_ms: AtMs
    call: Literal[
        "begun", "published", "advanced", "taken", "changed", "redefined", "settled", "joined",
        "conflated",
    ]  # fmt: skip
    session: NotRequired[str]
    sub: NotRequired[str]
    topic: NotRequired[str]
    bookmark: NotRequired[str]
    definition: NotRequired[TracedDefinition]
    command: NotRequired[Command]
    options: NotRequired[str]
    lane: NotRequired[str]
    paused: NotRequired[bool]
    held: NotRequired[int]
    waiting: NotRequired[int]
    messages: NotRequired[list[TracedMessage]]
    bytes_max: NotRequired[int | None]
    rows: NotRequired[list[TracedRow]]
    policy: NotRequired[QueuePolicy]
    messages_max: NotRequired[int | None]


class DecisionEvent(TypedDict):
    """A decision; fields without a value are omitted."""

    at_ms: AtMs
    decision: DecisionKind
    key: NotRequired[list[Any]]
    offset: NotRequired[int]
    earlier: NotRequired[Annotated[int, Field(description="Offset of the message it replaced")]]
    messages: NotRequired[int]
    rows: NotRequired[int]
    due_ms: NotRequired[AtMs]
    why: NotRequired[str]


class EndEvent(TypedDict):
    """The trace ends, and why."""

    at_ms: AtMs
    reason: str


# Traces are for people, so their fields are named like the engine's calls and not in the contract.
TRACE_EVENTS = {"call": ref(CallEvent), "decision": ref(DecisionEvent), "end": ref(EndEvent)}
TRACE: dict[int | str, dict[str, Any]] = {
    200: answer("Server-sent events", content=events_of(TRACE_EVENTS, {}))
}
ANSWERED = (
    HelloEvent, SubscribedEvent, OofEvent, GroupEvent, ResumedEvent, LateEvent, ConflationEvent,
    ProgressEvent, UnsubscribedEvent, StatusEvent, RefusedEvent, GoodbyeEvent, BatchEvent,
    CallEvent, DecisionEvent, EndEvent,
)  # fmt: skip
