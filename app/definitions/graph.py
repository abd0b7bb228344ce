"""Rules about a definition and other topics: sources, cycles, and changes of used topics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.refusals import Refused

Find = Callable[[str], TopicDefinition | None]
"""None: there is no such topic. One that is there and cannot be used is refused by the call."""

# Pointers in the order of `TopicDefinition.identity`.
_IDENTITY = ("/key", "/type", "/retain")


def resolved(name: str, document: TopicDefinition, find: Find) -> TopicDefinition:
    """Return the document with the key that its source gives it; `find` returns other topics.

    Raises:
        Refused: source-cycle, topic-unknown for a source that is not there, topic-invalid.
    """
    # The whole chain is walked: a cycle closes at any topic after this one.
    source, seen = document.source, {name}
    while source is not None:
        if source.topic in seen:
            detail = "The topic would be filled from itself."
            raise Refused("source-cycle", detail, pointer="/source/topic")
        seen.add(source.topic)
        found = find(source.topic)
        if found is None:
            detail = "The source topic is not there."
            raise Refused("topic-unknown", detail, pointer="/source/topic")
        source = found.source
    filled_from = document.source and find(document.source.topic)
    return document.filled_from(filled_from) if filled_from else document


def sources_of(name: str, served: Callable[[str], TopicDefinition | None]) -> list[str]:
    """Return the topics that the gateway fills a topic from, nearest first.

    `served` returns the definitions of usable topics. Those that are read one by one may form a
    cycle, which ends at the first topic that comes again.
    """
    sources: list[str] = []
    document = served(name)
    while document is not None and (source := document.gateway_source) is not None:
        if source.topic in sources:
            break
        sources.append(source.topic)
        document = served(source.topic)
    return sources


def sources_first(
    names: Iterable[str], served: Callable[[str], TopicDefinition | None]
) -> list[str]:
    """Return topics by the length of their chains of sources, each behind all of its sources.

    A topic that begins again before its source is filled with what the source has had before.
    """
    return sorted(names, key=lambda name: len(sources_of(name, served)))


def is_source(name: str, documents: Iterable[TopicDefinition]) -> bool:
    """Return True if one of the documents names the topic as its source."""
    sources = (document.source for document in documents)
    return any(source is not None and source.topic == name for source in sources)


def check_identity(
    before: TopicDefinition, after: TopicDefinition, *, has_messages: bool, is_used: bool
) -> None:
    """Refuse another key or type for a topic with messages or with derived topics.

    Raises:
        Refused: topic-conflict once it has messages, topic-in-use while another is filled from it.
    """
    pairs = zip(_IDENTITY, before.identity, after.identity, strict=True)
    changed = next(((pointer, old) for pointer, old, new in pairs if old != new), None)
    if changed is None:
        return
    pointer, old = changed
    if has_messages:
        kept = f"{pointer.removeprefix('/')} ({_shown(old)})"
        detail = f"The topic holds messages, so its {kept} stays as it is; delete the topic first."
        raise Refused("topic-conflict", detail, pointer=pointer)
    if is_used:
        raise Refused("topic-in-use", "Another topic is filled from this one.", pointer=pointer)


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"


def keeps_messages(
    unusable: Unusable, document: TopicDefinition, *, has_messages: bool, is_used: bool
) -> bool:
    """Return True if a usable definition can keep the topic's messages; else start it empty.

    Raises:
        Refused: topic-conflict where it holds messages that are of another key, type or source.
    """
    # Stored messages fit any definition of the same identity, whatever else was wrong with it.
    if unusable.identity == document.identity:
        is_filled_anew = unusable.source_topic is None and document.gateway_source is not None
        if has_messages and is_filled_anew:
            raise _not_brought()
        return True
    if has_messages:
        detail = "The topic holds messages of another key, type or retain; delete it first."
        raise Refused("topic-conflict", detail)
    if is_used:
        raise Refused("topic-in-use", "Another topic is filled from this one.")
    return False


def becomes_derived(before: TopicDefinition, after: TopicDefinition) -> bool:
    """Return True if a topic that clients published to is to be filled from a source."""
    return before.source is None and after.gateway_source is not None


def has_same_source(before: TopicDefinition, after: TopicDefinition) -> bool:
    """Return True if the gateway fills a topic from the same topic, or none, as before a change."""
    old, new = before.gateway_source, after.gateway_source
    return (old and old.topic) == (new and new.topic)


def check_source(before: TopicDefinition, after: TopicDefinition, *, has_messages: bool) -> None:
    """Refuse a source for a topic with messages that it has not brought: they would be removed.

    Raises:
        Refused: topic-conflict where it has messages that no source has brought.
    """
    if has_messages and becomes_derived(before, after):
        raise _not_brought()


def _not_brought() -> Refused:
    detail = "The topic holds messages that its source has not brought; delete it first."
    return Refused("topic-conflict", detail, pointer="/source")
