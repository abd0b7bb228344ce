"""The streams that run on one Spark: each is started and stopped by itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.clients.retry import Retry
from tidegate.pipeline.connection import AT_ONCE, gateway_at, reported_retry
from tidegate.pipeline.definitions.source import redis_of
from tidegate.pipeline.definitions.stream import StreamDefinition
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.operations.spark_run import spark_errors
from tidegate.pipeline.operations.supervisor import RunOptions, Say, StartGate, Supervisor
from tidegate.pipeline.operations.watch import POLL_EVERY_S, stop_queries
from tidegate.pipeline.redis_server import RedisServer
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunningStream:
    """One stream of a runner; it holds its checkpoint from the first start to `close`."""

    def __init__(self, runner: StreamRunner, definition: StreamDefinition) -> None:
        self.definition = definition
        self.stream = Stream(definition)
        self.supervised = Supervisor(
            definition.name,
            self.stream,
            self._start,
            restarts=runner.restarts,
            say=runner.say,
            gate=runner.gate,
        )
        self._runner = runner
        self._opened = ExitStack()
        self._checkpoint: Checkpoint | None = None

    def hold(self) -> Checkpoint:
        """Lock the checkpoint and return it.

        Raises:
            PipelineError: it belongs to another stream or process, or is not whole.
        """
        if self._checkpoint is None:
            self._checkpoint = self._opened.enter_context(Checkpoint(self.definition))
        return self._checkpoint

    def close(self) -> None:
        """Release the checkpoint, once the query is stopped."""
        self.supervised.end()
        self._opened.close()

    def _start(self) -> None:
        spark = self._runner.spark
        assert spark is not None, "nothing starts before Spark does"
        if self.stream.query is not None:
            # Once: the main thread has other streams, and the supervisor pauses anyway.
            self.ask_servers(lambda _: AT_ONCE)
        with spark_errors(self.definition.name):
            self.stream.start(spark, self.hold(), available_now=self._runner.available_now)

    def ask_servers(self, retry_of: Callable[[str], Retry]) -> None:
        """Ask the gateway of the sink and the Redis of each source, which Spark would do silently.

        Args:
            retry_of: how the server at an address is asked again.

        Raises:
            GatewayUnreachable: one does not answer.
        """
        definition = self.definition
        if (topic := definition.sink.topic) is not None:
            with gateway_at(definition.gateway, retry_of(definition.gateway)) as gateway:
                gateway.find_topic(topic)
        for address in filter(None, map(redis_of, definition.sources)):
            with RedisServer(address, retry_of(address)) as redis:
                redis.ask("PING")


class StreamRunner:
    """Streams by name.

    Args:
        options: how they are run.
        say: gets a line at each start and failure.

    Attributes:
        members: the running streams; the list changes as they join and leave.
        dead_letters: the folder of each stream's dead letters.
        spark: the session, once it is there.
        gate: lets one stream start at a time.
    """

    def __init__(self, options: RunOptions, say: Say) -> None:
        self.available_now = options.available_now
        self.restarts = options.goes_on
        self.say = say
        self.spark: SparkSession | None = None
        self.gate = StartGate()
        self.members: list[Supervisor] = []
        self.dead_letters: dict[str, Path] = {}
        self._streams: dict[str, RunningStream] = {}

    def add(self, definition: StreamDefinition) -> RunningStream:
        """Add a stream without starting it."""
        running = RunningStream(self, definition)
        self._streams[definition.name] = running
        self.members.append(running.supervised)
        self.dead_letters[definition.name] = definition.dead_letters
        return running

    def hold(self) -> None:
        """Lock the checkpoints of all streams.

        Raises:
            PipelineError: one belongs to another stream or process, or is not whole.
        """
        for running in self._streams.values():
            running.hold()

    def begin(self) -> None:
        """Start all streams, one by one.

        Raises:
            PipelineError: one of them does not start.
        """
        for running in self._streams.values():
            # The supervisors' loop has not begun, so nobody else waits for the gate.
            while not self.gate.is_free():
                time.sleep(POLL_EVERY_S)
            running.ask_servers(partial(reported_retry, report=self.say, pause=time.sleep))
            running.supervised.start_first()
            self.say(_start_line(running.definition))

    def join(self, definition: StreamDefinition) -> None:
        """Add a stream, which starts when its supervisor is polled and the gate is free.

        Remove checkpoints that earlier definitions of its topic have left.
        """
        # The topic was defined otherwise before; its old state is of no use to this stream.
        for path in _children(definition.checkpoint.parent):
            if path not in (definition.checkpoint, definition.dead_letters):
                shutil.rmtree(path, ignore_errors=True)
        self.say(_start_line(definition))
        self.add(definition)

    def leave(self, name: str, *, forget: bool) -> None:
        """Stop a stream, and with `forget` remove its checkpoint."""
        running = self._streams.pop(name)
        # In this order: the checkpoint is released, and perhaps removed, when nothing writes to it.
        _stop([running.stream])
        running.close()
        self.members.remove(running.supervised)
        if forget:
            shutil.rmtree(running.definition.checkpoint, ignore_errors=True)
        self.say(f"{name}: stopped")

    def lost(self) -> Collection[str]:
        """Return the streams whose source no longer has what they need, but has all records."""
        return [
            name
            for name, running in self._streams.items()
            if isinstance(running.supervised.failure, SourceLost)
            and running.definition.begins_with_records
        ]

    def end(self) -> None:
        """Send what is still held, once all recorded input was read.

        Raises:
            PipelineError: it cannot be sent.
        """
        for running in self._streams.values():
            running.stream.end()

    def stop(self) -> None:
        """Stop all queries between two batches."""
        _stop([running.stream for running in self._streams.values()])

    def close(self) -> None:
        """Release all checkpoints."""
        for running in self._streams.values():
            running.close()


def _stop(streams: Sequence[Stream]) -> None:
    # All at once before any is waited for: a paced batch may stay open for its whole interval.
    for stream in streams:
        stream.stop_holding()
    stop_queries([stream.query for stream in streams])


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _start_line(definition: StreamDefinition) -> str:
    return (
        f"{definition.name}: newest of {definition.key} every {definition.interval_text} "
        f"to {definition.sink.label}"
    )
