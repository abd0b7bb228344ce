"""Where a topic's journal is read: from a gateway, or straight from the Redis that gateways share.

Both give the same rows and the same bookmarks, so a checkpoint made one way goes on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self

import pyarrow as pa

from pipeline.bookmark import START, join_bookmark
from pipeline.datasource.busjournal import BusJournal
from pipeline.datasource.envelope import envelope_batch, record_batch
from pipeline.datasource.options import ReadOptions
from pipeline.gateway import Gateway, Journal
from pipeline.patience import IN_SILENCE, Waiting

MESSAGES_PER_REQUEST_MAX = 5_000


class TopicJournal(Protocol):
    """A topic's journal; its connection ends with the `with` block."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

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

    def __init__(self, address: str, topic: str, waiting: Waiting = IN_SILENCE) -> None:
        self._gateway = Gateway(address, waiting=waiting)
        self._topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.__exit__()

    def ends(self) -> Journal:
        """As `TopicJournal` has it: one small request."""
        return self._gateway.journal(self._topic)

    def page(self, epoch: str, after: int, last: int) -> pa.RecordBatch:
        """As `TopicJournal` has it."""
        since = join_bookmark(epoch, after) if after else START
        wanted = min(last - after, MESSAGES_PER_REQUEST_MAX)
        return envelope_batch(self._gateway.messages(self._topic, since, wanted), epoch, after)

    def records(self, epoch: str, last: int) -> Iterator[pa.RecordBatch]:
        """The records that were published up to position `last` and are the same since, in pieces.

        Raises:
            SourceLost: the topic has another epoch.
            GatewayRefused: it keeps none.
        """
        for piece in self._gateway.records(self._topic):
            yield record_batch(piece, epoch, last)


def open_journal(options: ReadOptions, waiting: Waiting = IN_SILENCE) -> TopicJournal:
    """The journal that the options name; `waiting` is told while it does not answer.

    Raises:
        DefinitionInvalid: not an address.
    """
    if options.is_bus:
        return BusJournal(options.gateway, options.prefix, options.topic, waiting)
    return GatewayJournal(options.gateway, options.topic, waiting)
