"""A topic as its administrator writes it: the JSON document of `PUT /v1/topics/{topic}`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.problems import Problem
from app.query import TOPIC_NAME
from app.settings import Settings
from app.units import parse_size
from conflation.definition import Definition, QueuePolicy
from conflation.duration import DAY, MILLISECOND, duration_text, parse_duration
from conflation.log import History
from keys.errors import PathInvalid
from keys.spec import KeySpec

SPARK = "spark"
DESCRIPTION_CHARACTERS_MAX = 4_096
SOURCE_NS_MIN = 100 * MILLISECOND
SOURCE_NS_MAX = DAY // 24

# Fields whose other values are not served yet; their default changes nothing.
_LATER: Mapping[str, object] = {
    "options": "",
    "placement": "append",
    "match": None,
    "merge": "replace",
    "retain": None,
    "values_only": False,
    "priority": "default",
    "expiration": None,
    "schema": None,
    "tidy_on_unsubscribe": False,
}
_POLICIES_LATER = ("always", "unsubscribe")
_TYPES_LATER = ("text", "binary", "series")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a topic's messages come from, and who brings them."""

    topic: str
    interval_ns: int
    engine: str


@dataclass(frozen=True, slots=True)
class TopicDocument:
    """A checked document; `text` values stand as they will be shown."""

    key_spec: KeySpec = field(default_factory=KeySpec)
    policy: QueuePolicy = QueuePolicy.CONFLATE
    history: Mapping[str, Any] | None = None
    source: Source | None = None
    description: str = ""

    @classmethod
    def parse(cls, body: bytes) -> TopicDocument:
        """From a request's body, strict JSON.

        Raises:
            Problem: topic-invalid, key-invalid or policy-invalid, with a pointer to the field.
        """
        document = msgspec.json.decode(body)
        if not isinstance(document, dict):
            raise Problem("topic-invalid", "A topic is a JSON object.")
        for name in document:
            if name in _LATER:
                if not _same(document[name], _LATER[name]):
                    raise _invalid(f"{name} is not available yet.", f"/{name}")
            elif name not in _READERS:
                known = ", ".join(_READERS)
                raise Problem("topic-invalid", f"Unknown field; known: {known}.")
        read = {
            name: reader(document[name]) for name, reader in _READERS.items() if name in document
        }
        return cls(
            key_spec=read.get("key", KeySpec()),
            policy=read.get("conflation", QueuePolicy.CONFLATE),
            history=read.get("history"),
            source=read.get("source"),
            description=read.get("description", ""),
        )

    def document(self) -> dict[str, object]:
        """The document that `parse` reads back to the same value."""
        source = self.source
        return {
            "key": [str(path) for path in self.key_spec.paths],
            "type": "json",
            "conflation": str(self.policy),
            "history": self.history,
            "source": None
            if source is None
            else {
                "topic": source.topic,
                "interval": duration_text(source.interval_ns),
                "engine": source.engine,
            },
            "description": self.description,
        }

    def etag(self, epoch: str) -> str:
        """Changes with the document, and when the topic is deleted and made again."""
        text = msgspec.json.encode([epoch, self.document()], order="sorted")
        return '"' + hashlib.blake2b(text, digest_size=8).hexdigest() + '"'

    def definition(self, settings: Settings) -> Definition:
        """What the engine needs of it."""
        kept = self.history or {}
        history = History(
            messages_max=kept.get("messages", settings.journal_messages_max),
            bytes_max=parse_size(kept["bytes"]) if "bytes" in kept else None,
            age_ms=parse_duration(kept["age"]) // MILLISECOND if "age" in kept else None,
        )
        return Definition(history, self.key_spec, self.policy)


def _same(value: object, default: object) -> bool:
    """Equal and of one type: to Python 0 is also False."""
    return type(value) is type(default) and value == default


def _key_spec(value: object) -> KeySpec:
    if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
        raise Problem("key-invalid", "key is a list of field paths.", pointer="/key")
    try:
        return KeySpec.of(value)
    except PathInvalid as error:
        raise Problem("key-invalid", f"{error.detail}.", pointer="/key") from None


def _type(value: object) -> None:
    if value in _TYPES_LATER:
        raise _invalid("This type is not available yet; json is.", "/type")
    if value != "json":
        raise _invalid("type is json, text, binary or series.", "/type")


def _policy(value: object) -> QueuePolicy:
    if value in _POLICIES_LATER:
        raise Problem(
            "policy-invalid", "This policy is not available yet; off and conflate are.",
            pointer="/conflation",
        )  # fmt: skip
    if not isinstance(value, str) or value not in set(QueuePolicy):
        raise Problem(
            "policy-invalid", "conflation is off, conflate, always or unsubscribe.",
            pointer="/conflation",
        )  # fmt: skip
    return QueuePolicy(value)


def _history(value: object) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not value or set(value) - {"messages", "age", "bytes"}:
        raise _invalid("history has messages, age and bytes, at least one of them.", "/history")
    messages = value.get("messages", 0)
    if not isinstance(messages, int) or isinstance(messages, bool) or messages < 0:
        raise _invalid("messages is a whole number.", "/history/messages")
    for name, reader in (("age", parse_duration), ("bytes", parse_size)):
        if name in value:
            _check_text(value[name], reader, f"/history/{name}")
    return dict(value)


def _check_text(value: object, reader: Callable[[str], int], pointer: str) -> int:
    try:
        if not isinstance(value, str):
            raise ValueError("expected a text with a unit")
        return reader(value)
    except ValueError as error:
        raise _invalid(f"{error}.", pointer) from None


def _source(value: object) -> Source | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _invalid("source is an object or null.", "/source")
    for name in value:
        if name in ("filter", "grouping", "projection"):
            raise _invalid(f"{name} is not available yet.", f"/source/{name}")
        if name not in ("topic", "interval", "engine"):
            raise _invalid("source has topic, interval and engine.", "/source")
    if value.get("engine", "gateway") == "gateway":
        raise _invalid("engine gateway is not available yet; spark is.", "/source/engine")
    if value["engine"] != SPARK:
        raise _invalid("engine is gateway or spark.", "/source/engine")
    topic = value.get("topic")
    if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic):
        raise _invalid("topic is the name of the source topic.", "/source/topic")
    interval_ns = _check_text(value.get("interval"), parse_duration, "/source/interval")
    if not SOURCE_NS_MIN <= interval_ns <= SOURCE_NS_MAX:
        raise _invalid("interval is from 100ms to 1h.", "/source/interval")
    return Source(topic, interval_ns, SPARK)


def _description(value: object) -> str:
    if not isinstance(value, str) or len(value) > DESCRIPTION_CHARACTERS_MAX:
        raise _invalid(
            f"description is a text of at most {DESCRIPTION_CHARACTERS_MAX} characters.",
            "/description",
        )
    return value


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("topic-invalid", detail, pointer=pointer)


_READERS: Mapping[str, Callable[[object], Any]] = {
    "key": _key_spec,
    "type": _type,
    "conflation": _policy,
    "history": _history,
    "source": _source,
    "description": _description,
}
