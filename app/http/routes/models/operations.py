"""Health, lanes, and what subscribing would do."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tidegate.conflation.subscription import Command


class Alive(TypedDict):
    """The process answers."""

    status: Literal["alive"]


class Fault(TypedDict):
    """A topic that cannot be used, or filled, and why."""

    topic: str
    state: str
    reason: str


class Ready(TypedDict):
    """The store takes writes, and so does the bus if there is one."""

    status: Literal["ready"]
    # Left out while there is nothing to report, so that a healthy answer is one word.
    topics: NotRequired[Annotated[list[Fault], Field(description="Topics that are not served")]]
    topics_at_fault: NotRequired[Annotated[int, Field(description="Number of topics not served")]]
    bus: NotRequired[Annotated[list[str], Field(description="Entries that no gateway wrote")]]


class Lane(TypedDict):
    """A lane, which equal subscriptions share."""

    topic: str
    lane: str
    subscriptions: int
    interval_ms: Annotated[int, Field(description="0: every message")]
    position: Annotated[str, Field(description="The lane holds nothing up to this bookmark")]
    due_ms: Annotated[int | None, Field(description="ms to the next flush; null: nothing is held")]


class Lanes(TypedDict):
    """All lanes, by topic."""

    lanes: list[Lane]


class Estimates(TypedDict):
    """The rates of the journaled messages under this subscription."""

    messages_per_s: float
    bytes_per_s: float
    interval: Annotated[str, Field(description="As in options; none: every message")]
    journalled: Annotated[int, Field(description="Number of messages it is estimated from")]


class Explained(TypedDict):
    """The effect that a request to subscribe would have."""

    topic: str
    command: Command
    options: Annotated[str, Field(description="As granted; asking for these grants the same")]
    filter: str | None
    order_by: str | None
    defaults: Annotated[dict[str, Any], Field(description="Options that hold by default")]
    warnings: list[str]
    lane: Annotated[str | None, Field(description="null: a `sow` has no lane")]
    subscribers: Annotated[int, Field(description="Subscribers of that lane now")]
    resume: Annotated[
        Literal["changes", "replay", "snapshot"] | None,
        Field(description="How a client that returns soon is resumed"),
    ]
    estimates: Estimates | None
    reason: Annotated[str | None, Field(description="Why there are no estimates")]


class PastPoint(TypedDict):
    """A half minute: rates a second over all topics but the gateway's own."""

    at_ms: Annotated[int, Field(description="Its end")]
    messages_in: float
    matched: Annotated[float, Field(description="Values that subscribers asked for")]
    delivered: Annotated[float, Field(description="Rows taken by subscribers")]
    flush_lateness_ms: Annotated[
        float | None, Field(description="Of 99 of 100 flushes at most; null without flushes")
    ]


class Past(TypedDict):
    """The last hour of one process, oldest first."""

    period_ms: int
    points: list[PastPoint]


ANSWERED = (Alive, Ready, Lanes, Explained, Past)
