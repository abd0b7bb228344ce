"""Topics as they are defined, and as they are shown with their live figures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tidegate.app.definitions.fields import TopicName
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.documents import nullable


class TopicPatch(TopicDefinition):
    """A JSON Merge Patch on a definition: null restores a default, an omitted field stays."""

    model_config = ConfigDict(json_schema_extra=nullable)


class Journal(TypedDict):
    """The journal of a topic."""

    first: Annotated[str | None, Field(description="Bookmark of the oldest message")]
    last: Annotated[str | None, Field(description="Bookmark of the newest message")]
    first_ms: Annotated[int | None, Field(description="When the oldest message was published")]
    last_ms: Annotated[int | None, Field(description="When the newest message was published")]
    messages: int


def _without_reason(schema: dict[str, Any]) -> None:
    """Let a topic that is served have none."""
    # `defaults_required` makes every field required, and a served topic has no reason.
    schema["required"].remove("reason")


class Topic(TopicDefinition):
    """A topic: its whole definition and its live figures."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_without_reason,
    )

    topic: TopicName
    state: Literal["served", "unfilled"]
    reason: Annotated[str, Field(description="Why the gateway does not fill it")]
    epoch: Annotated[str, Field(description="Changes when the topic is deleted and made again")]
    continues: Annotated[
        dict[str, int],
        Field(description="Epochs whose bookmarks are valid, each up to this offset"),
    ]
    messages_in: int
    bytes_in: int
    keys: Annotated[int, Field(description="Number of records")]
    bytes: Annotated[int, Field(description="Payload bytes in the journal")]
    subscriptions: int
    lanes: int
    delivered: int
    conflated: int
    conflation_ratio: float
    journal: Journal


class UnusableTopic(BaseModel):
    """A topic that this gateway cannot use, with its definition as stored."""

    # Its fields may be of a later version, or what makes it unusable.
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
