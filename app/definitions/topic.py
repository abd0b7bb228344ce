"""A topic as its administrator writes it: the JSON document of `PUT /v1/topics/{topic}`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tidegate.app.definitions.fields import (
    Placement,
    flag_reader,
    match_reader,
    match_shown,
    merge_reader,
    merge_shown,
    read_description,
    read_expiration,
    read_history,
    read_key,
    read_kind,
    read_options,
    read_placement,
    read_policy,
    read_priority,
    read_schema,
)
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.schema import Schema
from tidegate.app.definitions.source import FilledBy, Source
from tidegate.app.http.problems import Problem, unknown_field
from tidegate.app.settings import Settings
from tidegate.conflation.definition import (
    CONFLATING,
    Definition,
    History,
    Kind,
    Priority,
    QueuePolicy,
)
from tidegate.conflation.options.table import Options
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import decoded
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, duration_text, parse_duration
from tidegate.keys.text.size import parse_size

NO_MERGERS = Mergers()

Readers = Mapping[str, Callable[[object], Any]]

Identity = tuple[KeySpec, Kind, bool]
"""What stays while a topic holds messages: its key, its type, and whether it retains."""

# Name outside -> attribute, in the order of the contract.
FIELDS: Mapping[str, str] = {
    "key": "key_spec",
    "conflation": "policy",
    "options": "options",
    "placement": "placement",
    "match": "match",
    "merge": "merge",
    "type": "kind",
    "retain": "retain",
    "values_only": "values_only",
    "priority": "priority",
    "expiration": "expiration_ns",
    "history": "history",
    "schema": "schema",
    "tidy_on_unsubscribe": "tidies",
    "source": "source",
    "description": "description",
}


@dataclass(frozen=True, slots=True)
class TopicDocument:
    """A checked document. `policy` and `retain` are None where their default holds."""

    key_spec: KeySpec = field(default_factory=KeySpec)
    policy: QueuePolicy | None = None
    options: str = ""
    placement: Placement = Placement.APPEND
    match: KeySpec | Matcher | None = None
    merge: Reduce | Merger | None = None
    kind: Kind = Kind.JSON
    retain: bool | None = None
    values_only: bool = False
    priority: Priority = Priority.DEFAULT
    expiration_ns: int | None = None
    history: Mapping[str, Any] | None = None
    schema: Schema | None = None
    tidies: bool = False
    source: Source | None = None
    description: str = ""

    @classmethod
    def parse(cls, body: bytes, mergers: Mergers = NO_MERGERS) -> TopicDocument:
        """From strict JSON; `mergers` are those that `merge` and `match` may name.

        Raises:
            Problem: topic-invalid, key-invalid, policy-invalid, options-invalid or
                filter-invalid, with a pointer to the field.
        """
        try:
            document = decoded(body)
        except JsonInvalid as error:
            raise Problem("topic-invalid", f"{error.detail}.", position=error.position) from None
        if not isinstance(document, dict):
            raise Problem("topic-invalid", "A topic is a JSON object.")
        if document.keys() - FIELDS.keys():
            raise unknown_field("topic-invalid", document, FIELDS)
        readers = _readers(mergers)
        read = {FIELDS[name]: readers[name](value) for name, value in document.items()}
        return _checked(cls(**read))

    @property
    def retains(self) -> bool:
        """Whether it has a state of the world: records by key, or its newest message."""
        return bool(self.key_spec) if self.retain is None else self.retain

    @property
    def identity(self) -> Identity:
        """What stays while a topic holds messages: its key, its type, and whether it retains."""
        return self.key_spec, self.kind, self.retains

    @property
    def queue_policy(self) -> QueuePolicy:
        """What a full session queue does with its messages."""
        default = QueuePolicy.OFF if self.kind is Kind.SERIES else QueuePolicy.CONFLATE
        return default if self.policy is None else self.policy

    @property
    def gateway_source(self) -> Source | None:
        """The topic that this gateway fills it from, if it does."""
        source = self.source
        return source if source is not None and source.engine is FilledBy.GATEWAY else None

    def document(self) -> dict[str, object]:
        """The document, defaults included, that `parse` reads back to the same topic."""
        expiration_ns, source = self.expiration_ns, self.source
        return {
            "key": [str(path) for path in self.key_spec.paths],
            "conflation": str(self.queue_policy),
            "options": self.options,
            "placement": str(self.placement),
            "match": match_shown(self.match),
            "merge": merge_shown(self.merge),
            "type": str(self.kind),
            "retain": self.retains,
            "values_only": self.values_only,
            "priority": str(self.priority),
            "expiration": None if expiration_ns is None else duration_text(expiration_ns),
            "history": self.history,
            "schema": None if self.schema is None else self.schema.document,
            "tidy_on_unsubscribe": self.tidies,
            "source": None if source is None else source.document(),
            "description": self.description,
        }

    @property
    def schema_checked(self) -> Schema | None:
        """The schema of what is published here; what a source has is not checked again."""
        return self.schema if self.source is None else None

    def etag(self, epoch: str) -> str:
        """Changes with the document, and when the topic is deleted and made again."""
        return etag_of(epoch, self.document())

    def definition(self, settings: Settings) -> Definition:
        """What the engine needs of it.

        To the engine a topic that keeps no records is one without a key; its queues are
        conflated by the key all the same.
        """
        kept = self.history or {}
        history = History(
            messages_max=kept.get("messages", settings.journal_messages_max),
            bytes_max=parse_size(kept["bytes"]) if "bytes" in kept else None,
            age_ms=parse_duration(kept["age"]) // MILLISECOND if "age" in kept else None,
        )
        match = self.key_spec if self.key_spec and not self.retains else None
        return Definition(
            history,
            self.key_spec if self.retains else KeySpec(),
            self.queue_policy,
            kind=self.kind,
            retains=self.retains,
            values_only=self.values_only,
            merge=self.merge,
            match=match if self.match is None else self.match,
            replaces=self.placement is Placement.REPLACE,
            expiration_ns=self.expiration_ns if self.retains else None,
            priority=self.priority,
            tidies=self.tidies,
        )

    def filled_from(self, source: TopicDocument) -> TopicDocument:
        """The document of a topic that is filled from another, with the key that it then has.

        A stream of the pipeline may have a key of its own; a view has that of its grouping.

        Raises:
            Problem: topic-invalid, if the source cannot be conflated, or the key is another one.
        """
        given = self.source
        assert given is not None, "only what is filled takes over a key"
        by_spark = given.engine is FilledBy.SPARK
        if source.kind is not Kind.JSON and not by_spark:
            raise _invalid("Only a topic of type json can be conflated.", "/source/topic")
        if given.projection is not None:
            if not source.retains or not source.key_spec:
                raise _invalid("A view needs a source that keeps records.", "/source/topic")
            wanted = given.projection.grouping
        else:
            own = self.key_spec if by_spark else None
            wanted = own or source.key_spec or self.key_spec
        if not wanted:
            raise _invalid("The source has no key, so this topic needs one.", "/key")
        if self.key_spec and self.key_spec != wanted:
            raise _invalid("key is that of the source, or of the grouping.", "/key")
        return _normal(replace(self, key_spec=wanted))


def etag_of(epoch: str, fields: Mapping[str, Any]) -> str:
    """The entity tag of a definition's fields."""
    text = msgspec.json.encode([epoch, fields], order="sorted")
    return '"' + hashlib.blake2b(text, digest_size=8).hexdigest() + '"'


def _checked(document: TopicDocument) -> TopicDocument:
    """Fields that do not go together are refused at the one that is out of place."""
    for name in [] if document.kind is Kind.JSON else _only_of_json(document):
        raise _invalid(f"A topic of type {document.kind} has no {name}.", f"/{name}")
    if document.kind is Kind.SERIES:
        _check_series(document)
    if isinstance(document.merge, Reduce) and document.merge.writes_to(document.key_spec.paths):
        raise _invalid("A reducer may not write to a field of the key.", "/merge")
    return _normal(document)


def _normal(document: TopicDocument) -> TopicDocument:
    """The same topic, silent where its default holds: one topic has one document."""
    implied = replace(document, policy=None, retain=None)
    policy = None if document.policy is implied.queue_policy else document.policy
    retain = None if document.retain is implied.retains else document.retain
    return replace(implied, policy=policy, retain=retain)


def _check_series(document: TopicDocument) -> None:
    if document.queue_policy in CONFLATING:
        detail = "A series is never conflated; conflation is off or unsubscribe."
        raise Problem("policy-invalid", detail, pointer="/conflation")
    options = Options.parse(document.options)
    if options.given("conflation"):
        raise Problem(
            "options-invalid", "A series is never conflated.",
            position=options.position("conflation"), pointer="/options",
        )  # fmt: skip


def _only_of_json(document: TopicDocument) -> list[str]:
    """Fields that a topic of another type has and cannot use."""
    is_series = document.kind is Kind.SERIES
    used = {
        "key": bool(document.key_spec) and not is_series,
        "schema": document.schema is not None and not is_series,
        "match": document.match is not None,
        "merge": document.merge is not None,
        "placement": document.placement is not Placement.APPEND,
        "source": document.gateway_source is not None,
    }
    return [name for name, is_used in used.items() if is_used]


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("topic-invalid", detail, pointer=pointer)


def _readers(mergers: Mergers) -> Readers:
    return {
        "key": read_key,
        "conflation": read_policy,
        "options": read_options,
        "placement": read_placement,
        "match": match_reader(mergers),
        "merge": merge_reader(mergers),
        "type": read_kind,
        "retain": _read_retain,
        "values_only": flag_reader("values_only"),
        "priority": read_priority,
        "expiration": read_expiration,
        "history": read_history,
        "schema": read_schema,
        "tidy_on_unsubscribe": flag_reader("tidy_on_unsubscribe"),
        "source": Source.read,
        "description": read_description,
    }


def _read_retain(value: object) -> bool | None:
    return None if value is None else flag_reader("retain")(value)
