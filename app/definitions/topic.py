"""A topic's definition as its administrator writes it: the body of `PUT /v1/topics/{topic}`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import msgspec
from pydantic import Field, field_serializer, model_validator

from tidegate.app.definitions.fields import (
    Expiration,
    FilledBy,
    History,
    Match,
    Merge,
    OptionsText,
    Paths,
    Placement,
    TopicSource,
    Word,
)
from tidegate.app.definitions.mergers import NO_MERGERS, Mergers
from tidegate.app.definitions.schema import Schema, SchemaField
from tidegate.app.documents import Strict, invalid, read
from tidegate.app.refusals import Refused
from tidegate.conflation import definition as conflation_definition
from tidegate.conflation.definition import CONFLATING, Definition, Kind, Priority, QueuePolicy
from tidegate.conflation.options.table import Options
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

DESCRIPTION_CHARACTERS_MAX = 4_096

Identity = tuple[KeySpec, Kind, bool]
"""The part that stays while a topic holds messages: key, type, and whether it retains."""


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class TopicDefinition(Strict):
    """A topic as its administrator writes it; what is left out has its default."""

    code = "topic-invalid"
    codes: ClassVar[Mapping[str, str]] = {
        "key": "key-invalid",
        "conflation": "policy-invalid",
        "options": "options-invalid",
        "filter": "filter-invalid",
    }

    key_spec: Annotated[
        Paths,
        Field(
            alias="key",
            description="The key: the newest message of each is kept",
            json_schema_extra={"default": []},
        ),
    ] = KeySpec()
    policy: Annotated[
        Word[QueuePolicy],
        Field(
            alias="conflation",
            description="Policy of a full session queue; default: conflate; for a series: off",
            json_schema_extra=_without_default,
        ),
        # Overridden for a series by `_default_policy`.
    ] = QueuePolicy.CONFLATE
    options: Annotated[
        OptionsText,
        Field(description="Default options of its subscriptions; no_defaults leaves them out"),
    ] = ""
    placement: Annotated[
        Word[Placement], Field(description="Which position in a queue a merged message takes")
    ] = Placement.APPEND
    match: Annotated[
        Match,
        Field(
            description="Which messages may conflate: paths, a registered matcher; null: the key"
        ),
    ] = None
    merge: Annotated[
        Merge,
        Field(
            description="replace, from path to reducer, or a registered merger",
            json_schema_extra={"default": "replace"},
        ),
    ] = None
    kind: Annotated[Word[Kind], Field(alias="type", description="Type of its messages")] = Kind.JSON
    # Three values: null follows the key, which a filled topic gets from its source only later.
    retain: Annotated[
        bool | None,
        Field(description="true: it keeps records; null: it keeps them if it has a key"),
    ] = None
    values_only: Annotated[bool, Field(description="Never deltas")] = False
    priority: Annotated[
        Word[Priority], Field(description="Which topics a session with a backlog is sent first")
    ] = Priority.DEFAULT
    expiration_ns: Annotated[
        Expiration | None,
        Field(
            alias="expiration",
            description="A record is removed after this time without a new message",
        ),
    ] = None
    history: Annotated[History | None, Field(description="null: the gateway's setting")] = None
    message_schema: Annotated[
        SchemaField, Field(alias="schema", description="JSON Schema 2020-12")
    ] = None
    tidies: Annotated[
        bool,
        Field(
            alias="tidy_on_unsubscribe",
            description="Drop what is queued for a subscription that ends",
        ),
    ] = False
    source: Annotated[
        TopicSource | None, Field(description="The topic that fills it; null: publishers do")
    ] = None
    description: Annotated[
        str, Field(max_length=DESCRIPTION_CHARACTERS_MAX, description="For people")
    ] = ""

    @classmethod
    def parse(cls, body: bytes, mergers: Mergers = NO_MERGERS) -> Self:
        """Parse strict JSON; `mergers` are those that `merge` and `match` may name.

        Raises:
            Refused: topic-invalid, key-invalid, policy-invalid, options-invalid or
                filter-invalid, with a pointer to the field.
        """
        return read(cls, body, mergers=mergers)

    def document(self) -> dict[str, Any]:
        """Return the definition as JSON, defaults included; `parse` reads back the same topic."""
        # Defaults are written out: a later version with another default must not change a stored
        # topic.
        return self.model_dump(mode="json", by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _default_policy(cls, document: Any) -> Any:
        """Give a series the default policy of its own."""
        # A field's default cannot depend on a later field.
        if isinstance(document, dict) and document.get("type") == Kind.SERIES:
            return {"conflation": QueuePolicy.OFF, **document}
        return document

    @model_validator(mode="before")
    @classmethod
    def _normalize_retain(cls, document: Any) -> Any:
        """Make `retain` null where the default means the same."""
        # Equal topics have equal definitions; but a filled topic gets its key, hence its default,
        # from its source later.
        if not isinstance(document, dict):
            return document
        has_key = bool(document.get("key"))
        is_settled = has_key or not document.get("source")
        if is_settled and document.get("retain") is has_key:
            return {**document, "retain": None}
        return document

    @field_serializer("retain")
    def _written_retain(self, retain: bool | None) -> bool | None:
        return self.retains if self.key_spec or self.source is None else retain

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Refuse fields that do not go together, at the one that is out of place."""
        if self.kind is not Kind.JSON:
            unusable = self._only_of_json()
            if unusable:
                detail = f"A topic of type {self.kind} has no {unusable[0]}."
                raise invalid("topic-invalid", detail, f"/{unusable[0]}")
        if self.kind is Kind.SERIES:
            self._check_series()
        if isinstance(self.merge, Reduce) and self.merge.writes_to(self.key_spec.paths):
            detail = "A reducer may not write to a field of the key."
            raise invalid("topic-invalid", detail, "/merge")
        return self

    def _only_of_json(self) -> list[str]:
        """Return the fields that the topic has and its type cannot use."""
        is_series = self.kind is Kind.SERIES
        # In the order of the contract, as the first field out of place is the one that is named.
        used = {
            "key": bool(self.key_spec) and not is_series,
            "schema": self.message_schema is not None and not is_series,
            "match": self.match is not None,
            "merge": self.merge is not None,
            "placement": self.placement is not Placement.APPEND,
            "source": self.gateway_source is not None,
        }
        return [name for name, is_used in used.items() if is_used]

    def _check_series(self) -> None:
        if self.policy in CONFLATING:
            detail = "A series is never conflated; conflation is off or unsubscribe."
            raise invalid("policy-invalid", detail, "/conflation")
        options = Options.parse(self.options)
        # The position in the options text is known only here, so it goes into the refusal by hand.
        if "conflation" in options.positions:
            position = options.positions["conflation"]
            detail = "A series is never conflated."
            raise invalid("options-invalid", detail, "/options", position)

    def check_options(self, characters_max: int) -> None:
        """Refuse options that are longer than a request's may be.

        Not a part of `parse`: a definition that is stored stays usable under a lower setting.

        Raises:
            Refused: options-invalid.
        """
        if len(self.options) > characters_max:
            detail = f"options has at most {characters_max} characters."
            raise Refused("options-invalid", detail, pointer="/options")

    @property
    def retains(self) -> bool:
        """True if it has a state of the world: records by key, or its newest message."""
        return bool(self.key_spec) if self.retain is None else self.retain

    @property
    def identity(self) -> Identity:
        """The part that stays while a topic holds messages."""
        return self.key_spec, self.kind, self.retains

    @property
    def gateway_source(self) -> TopicSource | None:
        """The topic that this gateway fills it from, if it does."""
        # The pipeline fills the topics of engine spark over HTTP, like any publisher.
        source = self.source
        return source if source is not None and source.engine is FilledBy.GATEWAY else None

    @property
    def schema_checked(self) -> Schema | None:
        """The schema of what is published here; what a source has is not checked again."""
        return self.message_schema if self.source is None else None

    def etag(self, epoch: str) -> str:
        """Return the entity tag; it changes when the topic is deleted and made again, too."""
        return etag_of(epoch, self.document())

    def definition(self, messages_max: int, bytes_max: int) -> Definition:
        """Return what the engine needs of it; the arguments bound a journal by default.

        To the engine a topic that keeps no records has no key of records; intervals and queues
        conflate by its key all the same.
        """
        return Definition(
            self.history.kept(messages_max, bytes_max)
            if self.history
            else conflation_definition.History(messages_max, bytes_max),
            self.key_spec if self.retains else KeySpec(),
            self.policy,
            unkept_key=KeySpec() if self.retains else self.key_spec,
            kind=self.kind,
            retains=self.retains,
            values_only=self.values_only,
            merge=self.merge,
            match=self.match,
            replaces=self.placement is Placement.REPLACE,
            # Only records expire: without them there is nothing to remove.
            expiration_ns=self.expiration_ns if self.retains else None,
            priority=self.priority,
            tidies=self.tidies,
        )

    def filled_from(self, source: TopicDefinition) -> TopicDefinition:
        """Return the definition with the key that the source gives it.

        A stream of the pipeline may have a key of its own; a view has that of its grouping.

        Raises:
            Refused: topic-invalid, if the source cannot be conflated, or the key is another one.
        """
        given = self.source
        assert given is not None, "only what is filled takes over a key"
        # The gateway reads the source's JSON itself; the pipeline brings a finished topic of any
        # type.
        by_spark = given.engine is FilledBy.SPARK
        if source.kind is not Kind.JSON and not by_spark:
            raise _source_invalid("Only a topic of type json can be conflated.", "/source/topic")
        if given.projection is not None:
            if not source.retains or not source.key_spec:
                raise _source_invalid("A view needs a source that keeps records.", "/source/topic")
            wanted = given.projection.grouping
        else:
            own = self.key_spec if by_spark else None
            wanted = own or source.key_spec or self.key_spec
        if not wanted:
            raise _source_invalid("The source has no key, so this topic needs one.", "/key")
        if self.key_spec and self.key_spec != wanted:
            raise _source_invalid("key is that of the source, or of the grouping.", "/key")
        retain = False if self.retain is False else None  # with a key, true is the default
        return self.model_copy(update={"key_spec": wanted, "retain": retain})


FIELDS = TopicDefinition.names()
"""The names of a definition's fields, in the order of the contract."""


def etag_of(epoch: str, fields: Mapping[str, Any]) -> str:
    """Return the entity tag of a definition's fields."""
    # Sorted: a definition that was stored with its fields in another order is the same one.
    text = msgspec.json.encode([epoch, fields], order="sorted")
    return '"' + hashlib.blake2b(text, digest_size=8).hexdigest() + '"'


def _source_invalid(detail: str, pointer: str) -> Refused:
    return Refused("topic-invalid", detail, pointer=pointer)


# A stored topic that cannot be used.


_OF_IDENTITY = ("key", "type", "retain")


class TopicNotUsable(Refused):
    """`not-ready` of one topic: its stored definition cannot be used here."""

    def __init__(self, reason: str) -> None:
        super().__init__("not-ready", f"The topic cannot be used here: {reason}")


@dataclass(frozen=True, slots=True)
class Unusable:
    """A stored topic: the text of its definition, its epoch, and why it cannot be used here.

    Another gateway, or another version, may be able to use the definition. So the topic exists: its
    name is taken, and its messages stay.
    """

    name: str
    text: bytes
    epoch: str
    reason: str

    def refusal(self) -> Refused:
        """Return the refusal that answers every use of the topic."""
        return TopicNotUsable(self.reason)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The definition's known fields, unchecked; empty if the definition is no object."""
        try:
            check_json(self.text)
            found = decoded(self.text)
        except JsonInvalid:
            return {}
        if not isinstance(found, dict):
            return {}
        return {name: found[name] for name in FIELDS if name in found}

    @property
    def etag(self) -> str:
        """The entity tag that the definition has wherever it can be used."""
        return etag_of(self.epoch, self.fields or {"text": repr(self.text)})

    @property
    def identity(self) -> Identity | None:
        """The identity that a new definition must have to keep the messages; None: unreadable."""
        fields = self.fields
        if not fields:
            return None
        # Only these: the fields that make the definition unusable must not hide its identity.
        known = {name: fields[name] for name in _OF_IDENTITY if name in fields}
        try:
            return TopicDefinition.of(known).identity
        except Refused:
            return None

    @property
    def source_topic(self) -> str | None:
        """The topic that the definition names as its source, if any."""
        source = self.fields.get("source")
        topic = source.get("topic") if isinstance(source, dict) else None
        return topic if isinstance(topic, str) else None
