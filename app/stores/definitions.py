"""Stored topic definitions: the text that stores keep, and its parser."""

from __future__ import annotations

import msgspec

from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.http.problems import Problem
from tidegate.app.settings import Settings
from tidegate.app.stores.store import Stored, TopicRecord
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json
from tidegate.keys.spec import record_key


def encode_definition(document: TopicDefinition) -> bytes:
    """Return the text that stores keep of a definition."""
    return msgspec.json.encode(document.document())


def parse_stored(name: str, text: bytes, epoch: str, mergers: Mergers) -> Stored:
    """Parse a stored topic; an invalid text gives an `Unusable`, never an exception.

    Every start reads definitions through this function. The text may come from anywhere: an older
    version, a damaged file, or another program that writes to Redis.
    """
    try:
        check_json(text)
        return TopicRecord(name, TopicDefinition.parse(text, mergers), epoch)
    except JsonInvalid as error:
        return Unusable(name, text, epoch, f"Its definition cannot be read: {error.detail}.")
    except Problem as problem:
        field = "" if problem.pointer is None else f" (field {problem.pointer.lstrip('/')})"
        return Unusable(name, text, epoch, f"{problem.detail.removesuffix('.')}{field}.")
    except Exception as error:  # a parser bug must not keep the other topics from starting
        return Unusable(
            name, text, epoch, f"Its definition cannot be read: {type(error).__name__}."
        )


def check_readable(document: TopicDefinition, mergers: Mergers, settings: Settings) -> None:
    """Check that a start can read this definition again and build a topic from it.

    Raises:
        Problem: topic-invalid.
    """
    text = encode_definition(document)
    again = parse_stored("", text, "", mergers)
    if isinstance(again, Unusable):
        raise Problem("topic-invalid", f"The definition could not be read again: {again.reason}")
    if again.document != document or encode_definition(again.document) != text:
        raise Problem("topic-invalid", "The definition would be read back as a different one.")
    try:
        again.document.definition(settings.journal_messages_max)
        if again.document.key_spec:
            record_key(again.document.key_spec)
    except ValueError as error:
        detail = f"The definition gives no valid topic: {error}."
        raise Problem("topic-invalid", detail) from None
