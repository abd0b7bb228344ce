"""A stream of NATS JetStream, read by the sequences of its messages.

Each start makes a consumer that begins after the sequence that the gateway has; the server removes
consumers that nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy
from nats.js.client import JetStreamContext

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable, SourceLost
from tidegate.pipeline.ingest.connector import SourceBatch, SourceRecord, Through
from tidegate.pipeline.ingest.sources.shared import (
    NOW,
    RECORDS_FIRST,
    next_count,
    read_skips_gaps,
    read_start,
)
from tidegate.pipeline.nats_server import NatsConnection, NatsServer

SUBJECTS = 'subjects, such as ["plant.*.temperature"]'
MORE_SECONDS_MAX = 1.0  # for messages that the server has
CONSUMER_SECONDS = 300.0  # longer than a gateway is waited for


@dataclass(frozen=True, slots=True)
class NatsStream:
    """The table `source` of kind nats; `subjects` are empty for all of the stream."""

    server: NatsServer
    subjects: tuple[str, ...]
    start: str
    skips_gaps: bool
    kind: ClassVar[str] = "nats"
    separator: ClassVar[str] = "."

    @property
    def label(self) -> str:
        """The server without user and password, the stream and the subjects."""
        return " ".join(["nats", self.server.host, "stream", self.server.stream, *self.subjects])

    def connector(self, name: str) -> NatsConnector:
        """Return a connector that is not connected yet."""
        return NatsConnector(self, f"tidegate-{name}")


def read_source(table: TomlTable, folder: Path) -> NatsStream:
    """Read the table; relative paths are below `folder`."""
    return NatsStream(
        server=NatsServer.read(table, folder),
        subjects=tuple(table.texts("subscribe", SUBJECTS)) if table.has("subscribe") else (),
        start=read_start(table),
        skips_gaps=read_skips_gaps(table),
    )


class NatsConnector:
    """Reads messages after the sequence that the gateway has (a `Connector`).

    The client's tasks run only within calls, so nothing is received in between.
    """

    def __init__(self, source: NatsStream, client_name: str) -> None:
        self._source = source
        self._server = source.server
        self._runner = asyncio.Runner()
        self._connection = NatsConnection(source.server, client_name)
        self._messages: JetStreamContext.PullSubscription | None = None
        self._delivered = 0
        self._after = 0
        self._count = RECORDS_FIRST

    def open(self, through: Through) -> None:
        """Connect, and make a consumer.

        Raises:
            EndpointUnavailable: the server does not answer.
            EndpointRefused: it refuses the client, or has no such stream.
            SourceLost: messages that were still to be read are gone.
        """
        self._runner.run(self._connection.connect())
        self._runner.run(self._connection.within(self._make_consumer(through(""))))

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the next messages, once there is one.

        Raises:
            EndpointUnavailable: the connection or the consumer is lost.
            SourceLost: messages were deleted before they were read.
        """
        found = self._runner.run(self._connection.within(self._fetch(seconds)))
        if not found:
            return None
        records = [_record(each) for each in found]
        if self._runner.run(self._connection.within(self._has_gap(records))):
            records.insert(0, self._gap(records[0]))
        self._after = records[-1].number or 0
        self._count = next_count(records)
        return SourceBatch(records, lag=found[-1].metadata.num_pending)

    def acknowledge(self, batch: SourceBatch) -> None:
        """Do nothing: the gateway's number is the position."""

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._connection.close())
        self._runner.close()

    async def _make_consumer(self, through: int | None) -> None:
        source, server = self._source, self._server
        stream = self._connection.client.jetstream()
        found = await stream.stream_info(server.stream)
        retention = RetentionPolicy(found.config.retention or RetentionPolicy.LIMITS)
        if retention != RetentionPolicy.LIMITS:
            raise EndpointRefused(
                f"stream {server.stream} of {server.host} has the retention policy "
                f"{retention.value}: an ingest needs limits, so that a message is still "
                "there if it must be read again"
            )
        first, last = found.state.first_seq, found.state.last_seq
        if through is not None and last < through:
            raise SourceLost(
                f"stream {server.stream} of {server.host} ends at {last} and {through} was "
                "published: the stream was recreated; another name of the ingest reads it"
            )
        self._after = (last if source.start == NOW else first - 1) if through is None else through
        one = source.subjects[0] if len(source.subjects) == 1 else ""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=max(1, self._after + 1),
            ack_policy=AckPolicy.NONE,
            filter_subjects=list(source.subjects) if len(source.subjects) > 1 else None,
            inactive_threshold=CONSUMER_SECONDS,
        )
        self._messages = await stream.pull_subscribe(one, stream=server.stream, config=config)

    async def _fetch(self, seconds: float) -> list[Msg]:
        assert self._messages is not None
        try:
            found = await self._messages.fetch(1, seconds)
        except TimeoutError:
            return []
        # A request for more than there is would wait for the rest.
        more = min(self._count - 1, found[0].metadata.num_pending or 0)
        if more:
            with suppress(TimeoutError):
                found += await self._messages.fetch(more, MORE_SECONDS_MAX)
        for message in found:
            self._delivered += 1
            if message.metadata.sequence.consumer != self._delivered:
                raise EndpointUnavailable(f"a message of {self._server.host} was lost on its way")
        return found

    async def _has_gap(self, records: Sequence[SourceRecord]) -> bool:
        """Return whether messages before or between these may have been deleted unread.

        Other subjects, and messages deleted one by one, leave holes as well; only what the stream's
        limits remove is at its beginning.
        """
        numbers = [self._after, *(each.number or 0 for each in records)]
        holes = [low for low, high in pairwise(numbers) if low + 1 < high]
        if not holes:
            return False
        stream = await self._connection.client.jetstream().stream_info(self._server.stream)
        # A new message of a subject then removes an old one: that is no loss.
        if (stream.config.max_msgs_per_subject or 0) > 0:
            return False
        return stream.state.first_seq > holes[0] + 1

    def _gap(self, following: SourceRecord) -> SourceRecord:
        """Return a dead letter for what may be gone.

        Raises:
            SourceLost: the definition says so.
        """
        after, stream = self._after, self._server.stream
        said = f"the limits of stream {stream} removed messages after {after} before they were read"
        if not self._source.skips_gaps:
            raise SourceLost(f'{said}; gaps = "skip" continues with what is there')
        return SourceRecord(None, following.number, str(after), channel=stream, fault=said)


def _record(message: Msg) -> SourceRecord:
    found = message.metadata
    # An empty message, such as the marker of a deleted key in a bucket, removes a record.
    return SourceRecord(
        payload=message.data or None,
        number=found.sequence.stream,
        position=str(found.sequence.stream),
        channel=message.subject,
        timestamp_ms=int(found.timestamp.timestamp() * 1_000),
    )
