"""The events of a trace."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tidegate.app.http.openapi import answer, events_of, ref
from tidegate.conflation.definition import Kind, QueuePolicy
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.subscription import Command
from tidegate.conflation.tracing.decisions import DecisionKind

AtMs = Annotated[float, Field(ge=0, description="ms since the trace began")]


class TracedDefinition(TypedDict):
    """Of the topic, as far as it decides anything."""

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
    """What was done; which fields there are depends on `call`."""

    at_ms: AtMs
    call: Literal[
        "seated", "published", "advanced", "taken", "changed", "redefined", "settled", "joined",
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
    """What became of it; what there is nothing to say of is left out."""

    at_ms: AtMs
    decision: DecisionKind
    key: NotRequired[list[Any]]
    offset: NotRequired[int]
    earlier: NotRequired[Annotated[int, Field(description="Offset of what it stands in place of")]]
    messages: NotRequired[int]
    rows: NotRequired[int]
    due_ms: NotRequired[AtMs]
    why: NotRequired[str]


class EndEvent(TypedDict):
    """The trace ends, and why."""

    at_ms: AtMs
    reason: str


EVENTS = {"call": ref(CallEvent), "decision": ref(DecisionEvent), "end": ref(EndEvent)}
TRACE: dict[int | str, dict[str, Any]] = {
    200: answer("Server-sent events", content=events_of(EVENTS, {}))
}
ANSWERED = (CallEvent, DecisionEvent, EndEvent)
