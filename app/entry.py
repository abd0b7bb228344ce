"""An entry of the catalog: a topic as the routes use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from app.problems import Problem
from app.schema import Schema, SchemaViolation
from app.stores.store import TopicRecord
from app.topic_document import TopicDocument
from keys.extract import record_key


@dataclass(slots=True, eq=False)
class Entry:
    """A topic; `writing` keeps its messages in the store's order.

    Of messages up to `checkpointed` the store has the records. `filler_run` is the newest of the
    streams that have filled it from here. `key_of` takes a JSON text to its
    SOW key and `schema` checks it, where the topic has them and is not filled from another.
    """

    record: TopicRecord
    key_of: Callable[[bytes], str] | None = field(init=False)
    schema: Schema | None = field(init=False)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    checkpointed: int = 0
    filler_run: int = 0

    def __post_init__(self) -> None:
        self.redefine(self.record)

    @property
    def document(self) -> TopicDocument:
        """Its definition."""
        return self.record.document

    @property
    def etag(self) -> str:
        """Its definition's entity tag."""
        return self.document.etag(self.record.epoch)

    def redefine(self, record: TopicRecord) -> None:
        """Take a new definition over."""
        spec = record.document.key_spec
        self.record = record
        self.key_of = record_key(spec) if spec else None
        self.schema = record.document.schema_checked

    def check_schema(self, payload: bytes, line: int | None) -> None:
        """Whether a message, a JSON text, fits the topic's schema, if it has one.

        Raises:
            Problem: schema-violation, with the pointer to what does not fit.
        """
        if self.schema is None:
            return
        try:
            self.schema.check(payload)
        except SchemaViolation as violation:
            detail = f"The message breaks {violation.keyword[:64]} of the topic's schema."
            raise Problem(
                "schema-violation", detail, line=line, pointer=violation.pointer
            ) from None
