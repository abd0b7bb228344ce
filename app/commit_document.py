"""The document of a commit: who publishes which stages, as which run and number; read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from app.problems import Problem, unknown_field
from app.publish_request import NAME_CHARACTERS_MAX, NUMBER_MAX, is_name, is_producer
from app.stores.store import Producer
from keys.errors import JsonInvalid
from keys.jsontext import check_json, decoded

FIELDS = ("producer", "run", "sequence", "stages")
STAGES_MAX = 10_000
DOCUMENT_BYTES_MAX = 4 << 20


class Commit(NamedTuple):
    """A numbered producer of a run, and the stages that it wants published, in this order."""

    producer: Producer
    stages: tuple[str, ...]


def commit_of(body: bytes) -> Commit:
    """Of `POST /v1/topics/{topic}/commits`.

    Raises:
        Problem: message-invalid, with the pointer to what is wrong.
    """
    document = _object(body)
    name = document["producer"]
    if not isinstance(name, str) or not is_producer(name):
        detail = f"producer is a name of at most {NAME_CHARACTERS_MAX} characters."
        raise Problem("message-invalid", detail, pointer="/producer")
    producer = Producer(name, _number(document, "sequence"), _number(document, "run"))
    return Commit(producer, _stages(document["stages"]))


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        check_json(body)
        document = decoded(body)
    except JsonInvalid as error:
        raise Problem("message-invalid", f"{error.detail}.", position=error.position) from None
    known = ", ".join(FIELDS)
    if not isinstance(document, dict):
        raise Problem("message-invalid", f"A commit is a JSON object of {known}.")
    if any(name not in FIELDS for name in document):
        raise unknown_field("message-invalid", document, FIELDS)
    for name in FIELDS:
        if name not in document:
            raise Problem("message-invalid", f"{name} is missing.", pointer=f"/{name}")
    return document


def _number(document: Mapping[str, Any], name: str) -> int:
    value = document[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        detail = f"{name} is a whole number from 0 to {NUMBER_MAX}."
        raise Problem("message-invalid", detail, pointer=f"/{name}")
    return value


def _stages(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not 1 <= len(names) <= STAGES_MAX:
        detail = f"stages is a list of 1 to {STAGES_MAX} names."
        raise Problem("message-invalid", detail, pointer="/stages")
    seen: set[str] = set()
    for at, name in enumerate(names):
        pointer = f"/stages/{at}"
        if not isinstance(name, str) or not is_name(name):
            detail = f"A stage's name is 1 to {NAME_CHARACTERS_MAX} of printable ASCII, no spaces."
            raise Problem("message-invalid", detail, pointer=pointer)
        if name in seen:
            raise Problem("message-invalid", "A stage is named once.", pointer=pointer)
        seen.add(name)
    return tuple(names)
