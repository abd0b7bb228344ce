"""Topics and what they are filled from: what a definition may be beside all the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.problems import Problem
from app.topic_document import TopicDocument

Find = Callable[[str], TopicDocument | None]

_IDENTITY = ("/key", "/type", "/retain")


def resolved(name: str, document: TopicDocument, find: Find) -> TopicDocument:
    """The document with the key that its source gives it; `find` knows the other topics.

    Raises:
        Problem: source-cycle, topic-unknown for a source that is not there, topic-invalid.
    """
    source, seen = document.source, {name}
    while source is not None:
        if source.topic in seen:
            detail = "The topic would be filled from itself."
            raise Problem("source-cycle", detail, pointer="/source/topic")
        seen.add(source.topic)
        found = find(source.topic)
        if found is None:
            detail = "The source topic is not there."
            raise Problem("topic-unknown", detail, pointer="/source/topic")
        source = found.source
    filled_from = document.source and find(document.source.topic)
    return document.filled_from(filled_from) if filled_from else document


def is_source(name: str, documents: Iterable[TopicDocument]) -> bool:
    """Whether one of these is filled from the topic."""
    sources = (document.source for document in documents)
    return any(source is not None and source.topic == name for source in sources)


def check_identity(
    before: TopicDocument, after: TopicDocument, *, has_messages: bool, is_used: bool
) -> None:
    """Whether a topic may get another key or type.

    Raises:
        Problem: topic-conflict once it has messages, topic-in-use while another is filled from it.
    """
    pairs = zip(_IDENTITY, before.identity, after.identity, strict=True)
    pointer = next((pointer for pointer, old, new in pairs if old != new), None)
    if pointer is None:
        return
    if has_messages:
        detail = "Key, type and retain of a topic that holds messages stay; delete it first."
        raise Problem("topic-conflict", detail, pointer=pointer)
    if is_used:
        raise Problem("topic-in-use", "Another topic is filled from this one.", pointer=pointer)


def fills_anew(before: TopicDocument, after: TopicDocument) -> bool:
    """Whether a topic is to be filled by the gateway that so far took what anybody published."""
    return before.source is None and after.gateway_source is not None


def check_source(before: TopicDocument, after: TopicDocument, *, has_messages: bool) -> None:
    """Whether a topic may be filled from another one: what that does not have would be removed.

    Raises:
        Problem: topic-conflict where it has messages that no source has brought.
    """
    if has_messages and fills_anew(before, after):
        detail = "The topic holds messages that its source has not brought; delete it first."
        raise Problem("topic-conflict", detail, pointer="/source")
