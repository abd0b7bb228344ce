"""Topics as they are defined, and as they are shown with their live figures."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

from tidegate.app.definitions.fields import DESCRIPTION_CHARACTERS_MAX, Placement
from tidegate.app.definitions.source import FilledBy
from tidegate.app.http.requests import TOPIC_NAME
from tidegate.conflation.definition import Kind, Priority, QueuePolicy

Duration = Annotated[str, Field(description="An integer and a unit: ns us ms s m h d w")]
Path = Annotated[str, Field(description="Path of a field: /a/b, or JSONPath $.a.b")]
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME.pattern}$")]


class History(BaseModel):
    """What the journal keeps; at least one of them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    messages: Annotated[int, Field(ge=0, default_factory=int)]
    age: Annotated[Duration, Field(default_factory=str)]
    bytes: Annotated[str, Field(default_factory=str, description="A size: 64MiB")]


class TopicSource(BaseModel):
    """The topic that another one is filled from, conflated; with a projection it is a view."""

    model_config = ConfigDict(extra="forbid")

    topic: TopicName
    interval: Annotated[Duration, Field(description="100ms to 1h; with engine spark 1ms to 1d")]
    filter: Annotated[str | None, Field(description="Only messages that match")] = None
    grouping: Annotated[list[Path] | str | None, Field(description="Fields of a group")] = None
    projection: Annotated[
        list[str] | str | None, Field(description='Columns: ["SUM(/qty) AS /total"]')
    ] = None
    engine: Annotated[FilledBy, Field(description="Who fills it")] = FilledBy.GATEWAY


class TopicDefinition(BaseModel):
    """A topic as its administrator writes it; what is left out has its default."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    key: Annotated[
        list[Path], Field(description="The key: the newest message of each is kept")
    ] = []
    conflation: Annotated[
        QueuePolicy,
        Field(
            default_factory=lambda: QueuePolicy.CONFLATE,
            description="What a full session queue does: conflate, but of a series off",
        ),
    ]
    options: Annotated[str, Field(description="Default options of its subscriptions")] = ""
    placement: Annotated[Placement, Field(description="Where in a queue the survivor stands")] = (
        Placement.APPEND
    )
    match: Annotated[
        list[Path] | str | None,
        Field(
            description="Which messages may conflate: paths, a registered matcher; null: the key"
        ),
    ] = None
    merge: Annotated[
        dict[str, str] | str,
        Field(description="replace, from path to reducer, or a registered merger"),
    ] = "replace"
    type: Annotated[Kind, Field(description="What its messages are")] = Kind.JSON
    retain: Annotated[
        bool | None, Field(description="Whether it keeps records; null: if it has a key")
    ] = None
    values_only: Annotated[bool, Field(description="Never deltas")] = False
    priority: Annotated[Priority, Field(description="Which topics of a session go first")] = (
        Priority.DEFAULT
    )
    expiration: Annotated[
        Duration | None, Field(description="A record not published again for so long is removed")
    ] = None
    history: Annotated[History | None, Field(description="null: the gateway's setting")] = None
    schema_: Annotated[
        dict[str, Any] | bool | None, Field(alias="schema", description="JSON Schema 2020-12")
    ] = None
    tidy_on_unsubscribe: Annotated[
        bool, Field(description="Drop what is queued for a subscription that ends")
    ] = False
    source: Annotated[TopicSource | None, Field(description="null: its publishers")] = None
    description: Annotated[
        str, Field(max_length=DESCRIPTION_CHARACTERS_MAX, description="For people")
    ] = ""


_PATCHED: dict[str, Any] = {
    name: (
        Optional[field.annotation],  # noqa: UP045 - the annotation is a value here
        Field(None, alias=field.alias, description=field.description),
    )
    for name, field in TopicDefinition.model_fields.items()
}
TopicPatch = create_model(
    "TopicPatch",
    __config__=ConfigDict(extra="forbid", protected_namespaces=()),
    __doc__="A JSON Merge Patch on a definition: null restores a default, what is left out stays.",
    **_PATCHED,
)


class Journal(TypedDict):
    """What the journal holds."""

    first: Annotated[str | None, Field(description="Bookmark of the oldest message")]
    last: Annotated[str | None, Field(description="Bookmark of the newest")]
    messages: int


def _without_reason(schema: dict[str, Any]) -> None:
    """A topic that is served has none."""
    schema["required"].remove("reason")


class Topic(TopicDefinition):
    """A topic: its whole definition, and what came to it and went out."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_without_reason,
    )

    topic: TopicName
    state: Literal["served", "unfilled"]
    reason: Annotated[str, Field(description="Why it is not filled")]
    epoch: Annotated[str, Field(description="Changes when the topic is deleted and made again")]
    messages_in: int
    bytes_in: int
    keys: Annotated[int, Field(description="Records")]
    bytes: Annotated[int, Field(description="Of the journal")]
    subscriptions: int
    lanes: int
    delivered: int
    conflated: int
    conflation_ratio: float
    journal: Journal


class UnusableTopic(BaseModel):
    """A topic that cannot be used here, with its definition as it is stored."""

    model_config = ConfigDict(extra="allow")

    topic: TopicName
    state: Literal["unusable"]
    reason: str
    epoch: str


class Topics(TypedDict):
    """A page of topics by name."""

    topics: list[Topic | UnusableTopic]
    next: Annotated[str | None, Field(description="Address of the next page")]


SENT = (TopicDefinition, TopicPatch)
ANSWERED = (Topic, UnusableTopic, Topics)
