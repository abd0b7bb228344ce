"""What streams ask of topics, which stand above them and publish through their driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.stores.store import TopicRecord
from tidegate.conflation.definition import Definition


class ServedTopic(Protocol):
    """A topic that can be subscribed to."""

    record: TopicRecord

    @property
    def document(self) -> TopicDefinition:
        """Its definition."""


class Topics(Protocol):
    """The topics of the gateway, by name.

    `revision` grows with each change. `on_redefined` is called before another definition counts.
    """

    revision: int
    on_redefined: Callable[[str, Definition], None]

    def get(self, name: str) -> ServedTopic:
        """Return the topic of this name.

        Raises:
            Refused: topic-unknown; not-ready, if it cannot be used here.
        """

    def served(self, name: str) -> ServedTopic | None:
        """Return the usable topic of this name; None for one that is unusable or does not exist."""

    def unusable(self, name: str) -> Unusable | None:
        """Return the unusable topic of this name, if that is what it is."""

    def listed(self, prefix: str, after: str, limit: int) -> Iterator[ServedTopic]:
        """Return up to `limit` usable topics by name, after the name `after`."""

    def has_ended(self, epoch: str) -> bool:
        """Return True if the topic of this epoch was deleted, as far back as epochs are kept."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each topic that is created from now on."""

    def unlisten(self, listener: Callable[[str], None]) -> None:
        """Stop calling the listener."""


class SessionEvents(Protocol):
    """Takes what becomes of sessions."""

    def note(self, session: str, document: dict[str, object]) -> None:
        """Take an event of a session."""

    def forget(self, session: str) -> None:
        """Take that a session is not known any more."""
