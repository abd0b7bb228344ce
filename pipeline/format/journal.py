"""Where a topic's journal is read: from a gateway, or straight from the Redis that gateways share.

Both give the same rows and the same bookmarks, so a checkpoint made one way goes on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from tidegate.clients.answers import Journal
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.retry import TOPIC_UNKNOWN, Retry
from tidegate.keys.text.bookmark import START, join_bookmark
from tidegate.pipeline.connection import PATIENT, gateway_at
from tidegate.pipeline.errors import GatewayRefused
from tidegate.pipeline.format.bus_journal import BusJournal
from tidegate.pipeline.format.envelope import envelope_batch, record_batch
from tidegate.pipeline.format.options import ReadOptions

MESSAGES_PER_REQUEST_MAX = 5_000


class TopicJournal(Protocol):
    """A topic's journal; its connection ends with the `with` block."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def ends(self) -> Journal:
        """The bookmarks of the oldest and the newest message; no message crosses the wire.

        Raises:
            GatewayRefused: there is no such topic.
            GatewayUnreachable: nobody answers.
        """

    def page(self, epoch: str, after: int, last: int) -> pa.RecordBatch:
        """Rows that follow on position `after` without a gap, none behind `last`, not all perhaps.

        No rows mean that there are none any more.

        Raises:
            SourceLost: they are gone, or the topic has another epoch.
            GatewayRefused, GatewayUnreachable: as `ends`.
        """


class GatewayJournal:
    """The journal of a topic at a gateway."""

    def __init__(self, address: str, topic: str, retry: Retry = PATIENT) -> None:
        self._opened = ExitStack()
        self._gateway = self._opened.enter_context(gateway_at(address, retry))
        self._topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def ends(self) -> Journal:
        """As `TopicJournal` has it: one small request."""
        try:
            return self._gateway.journal(self._topic)
        except GatewayProblem as problem:
            if problem.code != TOPIC_UNKNOWN:
                raise
            raise GatewayRefused(
                f"{self._gateway.base_url} has no topic {self._topic} (topic-unknown): create it, "
                "or publish to it, before a stream reads it"
            ) from None

    def page(self, epoch: str, after: int, last: int) -> pa.RecordBatch:
        """As `TopicJournal` has it."""
        since = join_bookmark(epoch, after) if after else START
        wanted = min(last - after, MESSAGES_PER_REQUEST_MAX)
        return envelope_batch(self._gateway.journal_page(self._topic, since, wanted), epoch, after)

    def records(self, epoch: str, last: int) -> Iterator[pa.RecordBatch]:
        """The records that were published up to position `last` and are the same since, in pieces.

        Raises:
            SourceLost: the topic has another epoch.
            GatewayRefused: it keeps none.
        """
        for piece in self._gateway.records(self._topic):
            yield record_batch(piece, epoch, last)


def open_journal(options: ReadOptions, retry: Retry = PATIENT) -> TopicJournal:
    """The journal that the options name; `retry`: how it is asked again.

    Raises:
        DefinitionInvalid: not an address.
    """
    if options.is_bus:
        return BusJournal(options.gateway, options.prefix, options.topic, retry)
    return GatewayJournal(options.gateway, options.topic, retry)
