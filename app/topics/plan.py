"""The plan of a folder of definitions: all its changes, computed before any is applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.app.definitions.files import Declared
from tidegate.app.definitions.graph import (
    becomes_derived,
    check_identity,
    check_source,
    keeps_messages,
    resolved,
)
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.names import OWN_PREFIX
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import Store, check_readable
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.system_topics import OWN_TOPICS
from tidegate.conflation.errors import EngineError

HasMessages = Callable[[str], Awaitable[bool]]


class StepAction(StrEnum):
    """The kind of a step."""

    CREATE = "create"
    CHANGE = "change"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Step:
    """A declared topic compared with the existing one: new, changed, or the same."""

    declared: Declared
    before: TopicDefinition | Unusable | None
    after: TopicDefinition

    @property
    def what(self) -> StepAction:
        """The kind of the step."""
        if self.before is None:
            return StepAction.CREATE
        return StepAction.LEAVE if self.before == self.after else StepAction.CHANGE

    @property
    def fields(self) -> list[str]:
        """The fields that a change is about."""
        if self.before is None:
            return []
        known = self.before
        before = known.fields if isinstance(known, Unusable) else known.document()
        after = self.after.document()
        return [name for name in after if name in before and before[name] != after[name]]

    def __str__(self) -> str:
        """Such as `change prices.us: description, history`."""
        fields = f": {', '.join(self.fields)}" if self.fields else ""
        return f"{self.what} {self.declared.name}{fields}"


async def plan(
    declared: Sequence[Declared],
    known: Mapping[str, TopicDefinition | Unusable],
    has_messages: HasMessages,
    settings: Settings,
    mergers: Mergers,
) -> list[Step]:
    """Return a step for each declared topic; topics come after their sources.

    Args:
        declared: the folder's topics, as `read_topic_files` gives them.
        known: what there is.
        has_messages: whether a known topic has; asked where its key, type or source would change.
        settings: the gateway's settings; its own topics do not count as topics.
        mergers: that definitions may name.

    Raises:
        TopicFilesInvalid: the first that would be refused.
        Refused: bus-unavailable.
    """
    steps: list[Step] = []
    # A folder cannot declare the gateway's own topics, and they count towards no limit.
    there = {name: each for name, each in known.items() if not name.startswith(OWN_PREFIX)}

    def find(name: str) -> TopicDefinition | None:
        found = OWN_TOPICS.get(name) or there.get(name)
        if isinstance(found, Unusable):
            raise found.refusal()
        return found

    for each in declared:
        before = there.get(each.name)
        try:
            after = resolved(each.name, each.document, find)
            # A plan refuses what the next start could not use.
            check_readable(after, mergers, settings)
            if before is None and len(there) >= settings.topics_max:
                raise Refused("limit-reached", f"There are {settings.topics_max} topics already.")
            if before is not None:
                await _check_change(each.name, before, after, there, has_messages)
        except Unavailable:  # the store is out, and the file may be right
            raise
        except Refused as refusal:
            each.refuse(refusal)
        there[each.name] = after  # later topics of the folder may be filled from this one
        steps.append(Step(each, before, after))
    return steps


async def _check_change(
    name: str,
    before: TopicDefinition | Unusable,
    after: TopicDefinition,
    there: Mapping[str, TopicDefinition | Unusable],
    has_messages: HasMessages,
) -> None:
    """Refuse a definition that an existing topic may not get.

    Raises:
        Refused: topic-conflict, topic-in-use.
    """
    # Also by topics that the same folder declares before this one.
    is_used = any(_source_of(each) == name for each in there.values())
    # An unusable definition has no identity to compare; its messages decide.
    if isinstance(before, Unusable):
        keeps_messages(before, after, has_messages=await has_messages(name), is_used=is_used)
    elif before.identity != after.identity:
        check_identity(before, after, has_messages=await has_messages(name), is_used=is_used)
    elif becomes_derived(before, after):
        check_source(before, after, has_messages=await has_messages(name))


def _source_of(there: TopicDefinition | Unusable) -> str | None:
    if isinstance(there, Unusable):
        return there.source_topic
    return None if there.source is None else there.source.topic


async def plan_beside(
    store: Store, declared: Sequence[Declared], settings: Settings, mergers: Mergers
) -> list[Step]:
    """Return the plan against an open store.

    Raises:
        TopicFilesInvalid: the first that would be refused.
        Refused: bus-unavailable.
    """

    async def has_messages(name: str) -> bool:
        return await store.head(name) > 0

    known = {
        stored.name: stored if isinstance(stored, Unusable) else stored.document
        for stored in await store.records()
    }
    return await plan(declared, known, has_messages, settings, mergers)


async def carry_out(steps: Sequence[Step], catalog: Catalog) -> None:
    """Make every topic what its step says.

    Raises:
        TopicFilesInvalid: what no plan can foresee, such as too many sessions to fill topics.
        Refused: bus-unavailable.
    """
    for step in steps:
        try:
            await catalog.put(step.declared.name, step.declared.document)
        except EngineError as error:
            step.declared.refuse(Refused(error.code, f"{error.detail}."))
