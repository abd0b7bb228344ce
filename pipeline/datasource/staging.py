"""What one task writes, kept aside at the gateway until the driver commits it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pipeline.datasource.options import WriteOptions
from pipeline.datasource.outgoing import Line, body_of, lines_of
from pipeline.gateway import Gateway

STAGE_MESSAGES_MAX = 10_000
STAGE_BYTES_MAX = 8 * 1024 * 1024


@dataclass
class Staged(WriterCommitMessage):
    """What a task has kept aside, as `producer`: stages in their order, and how many messages."""

    producer: str
    messages: int = 0
    stages: list[str] = field(default_factory=list)


def stage_rows(options: WriteOptions, producer: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Keep a task's rows aside, in their order.

    Raises:
        StreamFailed: a row is no message.
        GatewayRefused, GatewayUnreachable: it could not be done.
    """
    with Gateway(options.gateway) as gateway:
        staging = Staging(gateway, options.topic, Staged(producer))
        for batch in batches:
            for line in lines_of(batch):
                staging.add(line)
        return staging.end()


class Staging:
    """Fills stage after stage. No two attempts, batches or runs have a stage's name in common."""

    def __init__(self, gateway: Gateway, topic: str, staged: Staged) -> None:
        self._gateway = gateway
        self._topic = topic
        self._staged = staged
        self._attempt = uuid.uuid4().hex
        self._lines: list[Line] = []
        self._bytes = 0

    def add(self, line: Line) -> None:
        """One line more; a full stage goes to the gateway."""
        is_full = len(self._lines) == STAGE_MESSAGES_MAX
        if is_full or self._bytes + len(line.text) >= STAGE_BYTES_MAX:
            self._stage()
        self._lines.append(line)
        self._bytes += len(line.text) + 1

    def end(self) -> Staged:
        """What is left goes too."""
        self._stage()
        return self._staged

    def _stage(self) -> None:
        if not self._lines:
            return
        staged = self._staged
        name = f"{staged.producer}.{self._attempt}.{len(staged.stages)}"
        body, enveloped = body_of(self._lines)
        self._gateway.stage(self._topic, body, staged.producer, name, enveloped=enveloped)
        staged.stages.append(name)
        staged.messages += len(self._lines)
        self._lines, self._bytes = [], 0
