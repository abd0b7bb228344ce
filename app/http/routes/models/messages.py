"""What publishing, the journal and the state of the world (`sow`) take and answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tidegate.app.http.publish_request import CommitDocument
from tidegate.app.streams.encoding import Op
from tidegate.conflation.frame import RemovalReason


class Published(TypedDict):
    """The bookmarks of a request's messages.

    `first` and `last` are null and `messages` is 0 for a retry whose bookmarks are unknown.
    """

    topic: str
    messages: int
    first: Annotated[str | None, Field(description="Bookmark of the first message")]
    last: Annotated[str | None, Field(description="Bookmark of the last message")]
    duplicate: Annotated[bool, Field(description="An earlier request published the messages")]
    sequence: NotRequired[
        Annotated[int, Field(description="The producer's highest, if this is not greater")]
    ]
    unmatched_removals: NotRequired[
        Annotated[int, Field(description="Removals that found no record, if there are any")]
    ]


class Staged(TypedDict):
    """Messages that wait under a name for a commit."""

    topic: str
    stage: str
    messages: int


class Deleted(TypedDict):
    """The number of removed records."""

    deleted: int


class Envelope(TypedDict):
    """A row with its topic, key and bookmark; a removal has the removed value, if known."""

    topic: str
    op: Op
    key: NotRequired[Annotated[list[Any] | None, Field(description="null: the topic has no key")]]
    bookmark: str
    value: Annotated[Any, Field(description="The message; a delta is a JSON Merge Patch")]
    timestamp: NotRequired[Annotated[int, Field(description="Milliseconds since 1970")]]
    reason: NotRequired[Annotated[RemovalReason, Field(description="The reason of a removal")]]
    conflated: NotRequired[Annotated[int, Field(description="Messages that the row stands for")]]
    first: NotRequired[Annotated[str, Field(description="Bookmark of the first of these messages")]]
    last: NotRequired[Annotated[str, Field(description="Bookmark of the last of these messages")]]


ROW: dict[str, Any] = {"description": "A message as it was published, or its envelope"}


class Message(BaseModel):
    """A message; in a topic without a key, any JSON value."""

    model_config = ConfigDict(extra="allow")


class MessagePatch(BaseModel):
    """A JSON Merge Patch with the key fields of the record that it is merged into."""

    model_config = ConfigDict(extra="allow")


class SentEnvelope(TypedDict):
    """With `format=envelope`: `value` publishes, `key` and `reason` remove."""

    value: NotRequired[Any]
    key: NotRequired[list[Any] | None]
    reason: NotRequired[Literal["deleted", "expired", "match"]]
    topic: NotRequired[str]
    op: NotRequired[Op]
    bookmark: NotRequired[str]
    timestamp: NotRequired[int]


SENT = (Message, MessagePatch, SentEnvelope, CommitDocument)
ANSWERED = (Published, Staged, Deleted, Envelope)
