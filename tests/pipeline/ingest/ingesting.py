"""Sources that are run within the test's process, against a real gateway."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.ingest.connector import Connector, SourceBatch
from tidegate.pipeline.ingest.definition import IngestDefinition, read_definitions, read_source
from tidegate.pipeline.ingest.intake import Intake
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.supervisor import RunOptions
from tidegate.pipeline.operations.threads import run_threads


def begins(where: object) -> dict[str, Any]:
    """The field `from` of a source, which is a word of Python's."""
    return {"from": where}


def definitions(folder: Path, text: str, gateway: str) -> list[IngestDefinition]:
    """Read a definition file with this text."""
    path = folder / "sources.toml"
    path.write_text(text)
    return read_definitions(path, gateway)


@contextlib.contextmanager
def ingesting(
    folder: Path, text: str, gateway: str, *, restarts: bool = True
) -> Iterator[list[str]]:
    """Run the sources of a file during the block; yields the lines that are printed."""
    stop, lines = Stop(), list[str]()
    intakes = [Intake(each, lines.append) for each in definitions(folder, text, gateway)]
    options = RunOptions(restarts=restarts)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run_threads, intakes, options, stop, lines.append)
        try:
            yield lines
        finally:
            stop.ask()
            running.result(HANGS_S)


def connector_of(fields: Mapping[str, Any], folder: Path = Path()) -> Connector:
    """The connector of a table `source`."""
    return read_source(TomlTable(fields, "f.toml", "ingest.a.source."), folder).connector("a")


def read_until(connector: Connector, count: int) -> list[SourceBatch]:
    """Batches of a connector until they have so many records."""
    batches: list[SourceBatch] = []
    deadline = time.monotonic() + HANGS_S
    while sum(len(each.records) for each in batches) < count:
        assert time.monotonic() < deadline, batches
        batch = connector.read(0.1)
        if batch is not None:
            batches.append(batch)
            connector.acknowledge(batch)
    return batches


def journal(address: str, topic: str) -> list[Any]:
    """The values that a topic's journal has, in order; of a removal its key."""
    with Gateway(address) as gateway:
        if gateway.find_topic(topic) is None:
            return []
        lines, after = list[Any](), "epoch"
        # An answer has a bounded number of lines.
        while page := [msgspec.json.decode(line) for line in gateway.messages(topic, after)]:
            lines += page
            after = page[-1]["bookmark"]
        return [line.get("key") if "reason" in line else line["value"] for line in lines]


def eventually(found: Callable[[], Any], wanted: Any) -> None:
    """Wait until something is found as wanted."""
    deadline = time.monotonic() + HANGS_S
    while (now := found()) != wanted:
        assert time.monotonic() < deadline, (now, wanted)
        time.sleep(0.02)
