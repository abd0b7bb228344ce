"""One source in a thread: read a batch, publish it, acknowledge it; and all sources of a file."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path

from tidegate.pipeline.connection import gateway_at, reported_retry
from tidegate.pipeline.ingest.connector import Connector, Restored, SourceBatch
from tidegate.pipeline.ingest.definition import IngestDefinition, read_definitions
from tidegate.pipeline.ingest.publishing import TopicPublisher
from tidegate.pipeline.operations.shutdown import Stop, print_line, until_stopped
from tidegate.pipeline.operations.status import BatchCount
from tidegate.pipeline.operations.supervisor import RunOptions, Say
from tidegate.pipeline.operations.threads import (
    READ_SECONDS,
    ThreadRun,
    ThreadStream,
    run_threads,
)

MS_PER_S = 1_000
FENCE_SECONDS = 10.0
"""How often an idle source asks whether a later process has taken over."""


class Intake(ThreadStream):
    """The source of a definition.

    `say` gets a line when the gateway does not answer, and when it is retried.
    """

    def __init__(self, definition: IngestDefinition, say: Say) -> None:
        name, topic = definition.name, definition.topic
        headline = f"{name}: {definition.source.label} to topic {topic}"
        super().__init__(name, definition.gateway, headline, definition.dead_letters)
        self.definition = definition
        self._say = say

    def work(self, run: ThreadRun) -> None:
        """Publish what the source has, until the run is asked to end."""
        definition = self.definition
        retry = reported_retry(definition.gateway, self._say, run.pause)
        number = int(time.time() * MS_PER_S)
        with (
            gateway_at(definition.gateway, retry) as gateway,
            closing(TopicPublisher(definition, gateway, number)) as publisher,
            closing(definition.source.connector(definition.name)) as connector,
        ):
            is_new = publisher.prepare()
            if is_new and definition.spec is None:
                self._say(keyless_line(definition))
            if isinstance(connector, Restored):
                connector.restore(publisher.messages())
            # Also for a source without positions, which asks for none: it fences earlier runs.
            publisher.through("")
            connector.open(publisher.through)
            publisher.finish_start()
            run.is_starting = False
            asked_at_s = time.monotonic()
            while not run.is_leaving:
                batch = connector.read(READ_SECONDS)
                run.finds_nothing = batch is None
                if batch is not None:
                    run.batch(partial(_publish, batch, connector, publisher), batch.lag)
                    asked_at_s = time.monotonic()
                elif time.monotonic() >= asked_at_s + FENCE_SECONDS:
                    publisher.check_fence()
                    asked_at_s = time.monotonic()


def keyless_line(definition: IngestDefinition) -> str:
    """Return what is said at the start where a topic is created without a key."""
    return (
        f"{definition.name}: the topic {definition.topic} is created without a key, so it keeps "
        "messages and no newest record of each key: name the fields of its key in the definition, "
        'such as key = ["/symbol"]'
    )


def _publish(batch: SourceBatch, connector: Connector, publisher: TopicPublisher) -> BatchCount:
    count = publisher.publish(batch)
    connector.acknowledge(batch)
    return count


def ingest(path: Path, options: RunOptions, gateway: str | None = None) -> int:
    """Run the sources of a file until stopped; return the exit code, as `until_stopped` does.

    `gateway` goes before the one that the file names.
    """

    def run(stop: Stop) -> None:
        intakes = [Intake(each, print_line) for each in read_definitions(path, gateway)]
        run_threads(intakes, options, stop, print_line)

    return until_stopped(run)
