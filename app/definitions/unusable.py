"""An unusable topic: a stored topic whose definition this gateway cannot use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.app.definitions.topic import FIELDS, Identity, TopicDocument, etag_of
from tidegate.app.http.problems import Problem
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

_OF_IDENTITY = ("key", "type", "retain")


class TopicNotUsable(Problem):
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

    def problem(self) -> Problem:
        """Return the problem that answers every use of the topic."""
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
        """What another definition must match to keep the messages; None: unreadable."""
        fields = self.fields
        if not fields:
            return None
        known = {name: fields[name] for name in _OF_IDENTITY if name in fields}
        try:
            return TopicDocument.parse(msgspec.json.encode(known)).identity
        except Problem:
            return None

    @property
    def source_topic(self) -> str | None:
        """The topic that the definition names as its source, if any."""
        source = self.fields.get("source")
        topic = source.get("topic") if isinstance(source, dict) else None
        return topic if isinstance(topic, str) else None
