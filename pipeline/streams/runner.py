"""The streams that run on one Spark: each is started and stopped by itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.pipeline.connection import AT_ONCE, gateway_at
from tidegate.pipeline.definitions.stream import StreamDefinition
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.operations.run_options import RunOptions
from tidegate.pipeline.operations.shutdown import LOOK_EVERY_S, stop_queries
from tidegate.pipeline.operations.supervisor import Say, StartGate, Supervisor
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunningStream:
    """A stream's place in a crew; the checkpoint is held from its first start to `leave`."""

    def __init__(self, crew: StreamRunner, definition: StreamDefinition) -> None:
        self.definition = definition
        self.stream = Stream(definition)
        self.supervised = Supervisor(
            definition.name,
            self.stream,
            self._start,
            restarts=crew.restarts,
            say=crew.say,
            turn=crew.turn,
        )
        self._crew = crew
        self._held = ExitStack()
        self._checkpoint: Checkpoint | None = None

    def hold(self) -> Checkpoint:
        """Take hold of the checkpoint.

        Raises:
            PipelineError: it is another's, or is not whole.
        """
        if self._checkpoint is None:
            self._checkpoint = self._held.enter_context(Checkpoint(self.definition))
        return self._checkpoint

    def leave(self) -> None:
        """Let it go; the query has been stopped."""
        self.supervised.end()
        self._held.close()

    def _start(self) -> None:
        spark = self._crew.spark
        assert spark is not None, "nothing starts before Spark does"
        if self.stream.query is not None:
            self._look_for_gateway()
        self.stream.start(spark, self.hold(), available_now=self._crew.available_now)

    def _look_for_gateway(self) -> None:
        """A new start has pauses of its own: the others, and the end, do not wait for a gateway.

        Raises:
            GatewayUnreachable: it is out.
        """
        topic = self.definition.sink.topic
        if topic is not None:
            with gateway_at(self.definition.gateway, AT_ONCE) as gateway:
                gateway.find_topic(topic)


class StreamRunner:
    """Streams by name.

    Args:
        manner: how they are run.
        say: told of starts and failures.

    Attributes:
        members: those who run, as they are looked at; alive.
        letters: where the dead letters of each are.
        spark: what they run on, once it is there.
        turn: whose it is to start.
    """

    def __init__(self, manner: RunOptions, say: Say) -> None:
        self.available_now = manner.available_now
        self.restarts = manner.goes_on
        self.say = say
        self.spark: SparkSession | None = None
        self.turn = StartGate()
        self.members: list[Supervisor] = []
        self.letters: dict[str, Path] = {}
        self._seats: dict[str, RunningStream] = {}

    def take(self, definition: StreamDefinition) -> RunningStream:
        """A place for a stream that is not started."""
        seat = RunningStream(self, definition)
        self._seats[definition.name] = seat
        self.members.append(seat.supervised)
        self.letters[definition.name] = definition.dead_letters
        return seat

    def hold(self) -> None:
        """Take hold of the checkpoints of those that have a place.

        Raises:
            PipelineError: one is another's, or is not whole.
        """
        for seat in self._seats.values():
            seat.hold()

    def begin(self) -> None:
        """Start those that have a place, one by one.

        Raises:
            PipelineError: one of them does not start.
        """
        for seat in self._seats.values():
            while not self.turn.is_free():
                time.sleep(LOOK_EVERY_S)
            seat.supervised.begin()
            self.say(_started(seat.definition))

    def join(self, definition: StreamDefinition) -> None:
        """Have a stream start beside the others at its turn, when it is looked at.

        Checkpoints that its topic had before are removed.
        """
        for path in _children(definition.checkpoint.parent):
            if path not in (definition.checkpoint, definition.dead_letters):
                shutil.rmtree(path, ignore_errors=True)
        self.say(_started(definition))
        self.take(definition)

    def leave(self, name: str, *, forget: bool) -> None:
        """Stop a stream, and with `forget` remove its checkpoint."""
        seat = self._seats.pop(name)
        _stop([seat.stream])
        seat.leave()
        self.members.remove(seat.supervised)
        if forget:
            shutil.rmtree(seat.definition.checkpoint, ignore_errors=True)
        self.say(f"{name}: stopped")

    def lost(self) -> Collection[str]:
        """Streams that may begin anew: what they had still to read is gone, records are there."""
        return [
            name
            for name, seat in self._seats.items()
            if isinstance(seat.supervised.failure, SourceLost)
            and seat.definition.begins_with_records
        ]

    def end(self) -> None:
        """Send what is still held, once all recorded input was read.

        Raises:
            PipelineError: it cannot be sent.
        """
        for seat in self._seats.values():
            seat.stream.end()

    def stop(self) -> None:
        """Stop all queries between two batches."""
        _stop([seat.stream for seat in self._seats.values()])

    def close(self) -> None:
        """Let the checkpoints go."""
        for seat in self._seats.values():
            seat.leave()


def _stop(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.hurry()
    stop_queries([stream.query for stream in streams])


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _started(definition: StreamDefinition) -> str:
    return (
        f"{definition.name}: newest of {definition.key} every {definition.interval_text} "
        f"to {definition.sink.place}"
    )
