"""Sessions and subscriptions: how they are asked for, and how they are shown."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tidegate.app.http.parameters import EVENT_ID, LAST_EVENT_ID, TOPIC_TEXT, Headers
from tidegate.app.parameters import text
from tidegate.app.streams.decisions import SubscriptionParameters
from tidegate.app.streams.documents import (
    SessionOpening,
    SessionTuning,
    SubscriptionChange,
    SubscriptionRequest,
)
from tidegate.app.streams.encoding import Format
from tidegate.conflation.auto import Reason
from tidegate.conflation.outputs import CloseReason
from tidegate.conflation.subscription import Command


class Subscribing(SubscriptionParameters):
    """A request to subscribe, and where to continue."""

    last_event_id: Annotated[
        str | None, EVENT_ID, Field(description="Continue after this id, as with Last-Event-ID")
    ] = None
    bookmarks: Annotated[
        str | None,
        text("bookmark-invalid"),
        Field(description="Where the topics of a pattern continue: px.eur=e1-7,px.usd=e2-9"),
    ] = None


class Explaining(SubscriptionParameters):
    """A request to subscribe to a topic, to be explained only."""

    topic: Annotated[str, TOPIC_TEXT, Field(description="The topic's name")]


class Continued(Headers):
    """The position of a reader that returns."""

    last_event_id: Annotated[
        str | None, LAST_EVENT_ID, Field(description="Continue after this id")
    ] = None


class Queue(TypedDict):
    """The rows that wait for the reader."""

    messages: int
    bytes: int


class Limits(TypedDict):
    """Limits of a session's queue; `upper` and `lower` are percent."""

    messages: int
    bytes: int
    upper: int
    lower: int


Start = Annotated[str, Field(description="Rows begin after it, without a snapshot")]


class TopicGrant(TypedDict):
    """The options granted in one topic of a pattern."""

    topic: str
    options: str
    lane: str
    format: Format
    bookmark: NotRequired[Start]


class Subscription(TypedDict):
    """The options granted; for a pattern `options` and `lane` are null and `topics` has each."""

    sub: str
    topic: Annotated[str, Field(description="A name or a pattern")]
    options: str | None
    lane: str | None
    format: NotRequired[Format]
    bookmark: NotRequired[Start]
    topics: NotRequired[list[TopicGrant]]
    warnings: NotRequired[list[str]]


class Figures(TypedDict):
    """Messages since the reader came."""

    filtered: int
    matched: int
    delivered: int
    conflated: int
    dropped: int
    waiting: int
    unreported: Annotated[int, Field(description="Conflated messages that no row has counted yet")]


class TopicFigures(TopicGrant, Figures):
    """One topic of a pattern."""

    interval_ms: int


class SubscriptionFigures(Figures):
    """A subscription and its figures."""

    sub: str
    topic: Annotated[str, Field(description="A name or a pattern")]
    options: str | None
    lane: str | None
    format: NotRequired[Format]
    bookmark: NotRequired[Start]
    command: Command | None
    filter: str | None
    order_by: str | None
    paused: bool
    topics: NotRequired[list[TopicFigures]]
    interval_ms: NotRequired[
        Annotated[int | None, Field(description="The current interval; 0: every message")]
    ]


class Subscriptions(TypedDict):
    """All subscriptions of a session."""

    subscriptions: list[SubscriptionFigures]


class _SessionFigures(TypedDict):
    """What is said of a session in a list and by itself."""

    session: str
    owner: Annotated[str | None, Field(description="The `sub` of the token that opened it")]
    address: Annotated[
        str | None, Field(description="Of the client that reads it, or read it last")
    ]
    client: Annotated[str | None, Field(description="What that client calls itself (User-Agent)")]
    topics: Annotated[list[str], Field(description="Asked for by its first 16 subscriptions")]
    state: Literal["attached", "away", "ended"]
    reason: Annotated[CloseReason | None, Field(description="Why its last stream ended")]
    opened_ms: int
    delivered: Annotated[int, Field(description="Rows that its present subscriptions have taken")]
    unsent_bytes: Annotated[int, Field(description="Not yet acknowledged by the peer")]
    queue: Queue
    limits: Limits
    conflated: bool


class Session(_SessionFigures):
    """A session: its state, the rows that wait, and its subscriptions."""

    subscriptions: list[SubscriptionFigures]


class ListedSession(_SessionFigures):
    """A session in a list; `subscriptions` is their number."""

    subscriptions: int


class Sessions(TypedDict):
    """A page of sessions by id."""

    sessions: list[ListedSession]
    next: Annotated[str | None, Field(description="Address of the next page")]
    # A list that lacked a gateway's sessions without a word would be taken for complete.
    missing: NotRequired[
        Annotated[list[str], Field(description="Gateways that did not answer in time")]
    ]


class OpenedSession(TypedDict):
    """A new session."""

    session: str
    events: Annotated[str, Field(description="Address of its stream")]
    subscriptions: list[Subscription]


class AutoInputs(TypedDict):
    """The figures that a decision about an interval is based on."""

    flush_bytes: int
    unsent_bytes: int
    overdue_bytes: int
    drain_ms: int
    late_rounds: int
    calm_ms: int


# Written as a call because `from` is a keyword of Python.
AutoDecision = TypedDict(
    "AutoDecision",
    {"at_ms": int, "from": str, "to": str, "reason": Reason, "inputs": AutoInputs},
)
AutoDecision.__doc__ = "A change of an interval."


class Auto(TypedDict):
    """The interval of a subscription, and why it changed."""

    sub: str
    interval: Annotated[str | None, Field(description="null: every message, or topics differ")]
    min: str | None
    max: str | None
    decisions: Annotated[list[AutoDecision], Field(description="The last fifty, newest last")]


SENT = (
    Subscribing, Explaining, SessionOpening, SessionTuning, SubscriptionRequest, SubscriptionChange,
)  # fmt: skip
ANSWERED = (
    OpenedSession,
    Session,
    Sessions,
    Subscription,
    SubscriptionFigures,
    Subscriptions,
    Auto,
)
