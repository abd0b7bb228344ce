"""Rows of a subscription of an embedded topic, for transports other than HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidegate.app.embed.driven_topic import TopicReader
from tidegate.app.streams.encoding import Op, json_value, op_of
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Tombstone
from tidegate.conflation.outputs import CloseReason, Goodbye, Output, Rows, Unsubscribed

TAKEN_BYTES: Final = 1 << 20
WAIT_S: Final = 3_600.0  # the engine wakes a reader; without it one only looks
ENDS: Final = frozenset({CloseReason.UNSUBSCRIBED, CloseReason.SHUTDOWN})
"""Reasons for which a subscription ends in good order."""


class SubscriptionClosed(Exception):
    """A subscription was closed because its reader is too slow.

    Attributes:
        reason: `MESSAGE_QUEUE_LIMIT_REACHED` or `BACK_PRESSURE`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Row:
    """A row as a subscriber gets it.

    Attributes:
        op: `snapshot` or `publish` for a whole value, `delta` for a merge patch (RFC 7396), `oof`
            for a removal.
        key_text: the key as JSON, such as `["IBM"]`; empty on a topic without key.
        value_text: the value as JSON: the bytes that were published, a patch, or what was removed.
        reason: of a removal: `deleted`, `expired` or `match`.
    """

    op: str
    key_text: str
    value_text: bytes
    reason: str | None = None

    @property
    def key(self) -> list[Any] | None:
        """The fields of the key; None on a topic without key."""
        return msgspec.json.decode(self.key_text, type=list[Any]) if self.key_text else None

    @property
    def value(self) -> Any:
        """The value, decoded at each call."""
        return msgspec.json.decode(self.value_text)


async def topic_rows(open_reader: Callable[[], TopicReader]) -> AsyncGenerator[list[Row], None]:
    """Yield the rows of each flush, or of a part of one; newer rows conflate those not asked for.

    Raises:
        SubscriptionClosed: the reader was too slow for the queue of every message.
        Refusal: as `open_reader`.
    """
    reader = open_reader().reader
    consumer = reader.consumer
    try:
        while True:
            outputs = consumer.take(TAKEN_BYTES)
            rows = list(_rows(outputs))
            if rows:
                yield rows
                await asyncio.sleep(0)  # a reader that always has rows would block the event loop
            if not outputs:
                await consumer.wait(WAIT_S)
            elif _has_ended(outputs):
                return
    finally:
        reader.close()


def _rows(outputs: Iterable[Output]) -> Iterable[Row]:
    for output in outputs:
        if isinstance(output, Rows):
            for frame in output.batch.frames:
                reason = str(frame.reason) if isinstance(frame, Tombstone) else None
                op = op_of(frame, Op(output.op))
                yield Row(str(op), frame.key, json_value(frame, Kind.JSON), reason)


def _has_ended(outputs: Iterable[Output]) -> bool:
    """Return True after the last outputs of a subscription.

    Raises:
        SubscriptionClosed: its reader was too slow.
    """
    for output in outputs:
        if isinstance(output, Unsubscribed) and output.reason != "REQUESTED":
            raise SubscriptionClosed(output.reason)
        if isinstance(output, Goodbye):
            if output.reason not in ENDS:
                raise SubscriptionClosed(output.reason)
            return True
    return False
