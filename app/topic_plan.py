"""What a folder of definitions would change: worked out whole before anything is applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.catalog import Catalog
from app.problems import Problem
from app.query import OWN_PREFIX
from app.stores.store import Store
from app.topic_document import TopicDocument
from app.topic_files import Declared
from app.topic_graph import check_identity, check_source, fills_anew, is_source, resolved
from conflation.errors import EngineError

HasMessages = Callable[[str], Awaitable[bool]]


class What(StrEnum):
    """What becomes of a topic."""

    CREATE = "create"
    CHANGE = "change"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Step:
    """A topic of the folder beside what there is: nothing, another definition, or the same."""

    declared: Declared
    before: TopicDocument | None
    after: TopicDocument

    @property
    def what(self) -> What:
        """What becomes of the topic."""
        if self.before is None:
            return What.CREATE
        return What.LEAVE if self.before == self.after else What.CHANGE

    @property
    def fields(self) -> list[str]:
        """The fields that a change is about."""
        if self.before is None:
            return []
        before, after = self.before.document(), self.after.document()
        return [name for name in after if before[name] != after[name]]

    def __str__(self) -> str:
        """Such as `change prices.us: description, history`."""
        fields = f": {', '.join(self.fields)}" if self.fields else ""
        return f"{self.what} {self.declared.name}{fields}"


async def plan(
    declared: Sequence[Declared],
    known: Mapping[str, TopicDocument],
    has_messages: HasMessages,
    topics_max: int,
) -> list[Step]:
    """A step for each declared topic, which come with sources before what they fill.

    Args:
        declared: the folder's topics, as `read_topic_files` gives them.
        known: what there is.
        has_messages: whether a known topic has; asked where its key, type or source would change.
        topics_max: as many as there may be, without the gateway's own.

    Raises:
        TopicFilesInvalid: the first that would be refused.
    """
    steps: list[Step] = []
    documents = {name: each for name, each in known.items() if not name.startswith(OWN_PREFIX)}
    for each in declared:
        before = documents.get(each.name)
        try:
            after = resolved(each.name, each.document, documents.get)
            if before is None and len(documents) >= topics_max:
                raise Problem("limit-reached", f"There are {topics_max} topics already.")
            if before is not None and before.identity != after.identity:
                check_identity(
                    before,
                    after,
                    has_messages=await has_messages(each.name),
                    is_used=is_source(each.name, documents.values()),
                )
            elif before is not None and fills_anew(before, after):
                check_source(before, after, has_messages=await has_messages(each.name))
        except Problem as problem:
            each.refuse(problem)
        documents[each.name] = after
        steps.append(Step(each, before, after))
    return steps


async def plan_beside(store: Store, declared: Sequence[Declared], topics_max: int) -> list[Step]:
    """The same, beside what an open store has.

    Raises:
        TopicFilesInvalid: the first that would be refused.
        Problem: bus-unavailable.
    """

    async def has_messages(name: str) -> bool:
        return (await store.kept(name)).head > 0

    known = {record.name: record.document for record in await store.records()}
    return await plan(declared, known, has_messages, topics_max)


async def carry_out(steps: Sequence[Step], catalog: Catalog) -> None:
    """Make every topic what its step says.

    Raises:
        TopicFilesInvalid: what nobody could foresee, such as too many sessions to fill topics.
        Problem: bus-unavailable.
    """
    for step in steps:
        try:
            await catalog.put(step.declared.name, step.declared.document)
        except EngineError as error:
            step.declared.refuse(Problem(error.code, f"{error.detail}."))
