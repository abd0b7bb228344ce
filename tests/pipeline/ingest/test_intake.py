"""A source in its thread: what ends it, what it counts, and that it waits for the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.pipeline.ingest.ingesting import definitions, eventually, journal
from tests.support.commands import serving_here
from tests.support.rules import rule
from tidegate.pipeline.errors import SourceLost, SourceUnreachable, StreamFailed
from tidegate.pipeline.ingest.connector import Connector, SourceBatch, SourceRecord, Through
from tidegate.pipeline.ingest.definition import IngestDefinition
from tidegate.pipeline.ingest.intake import Intake
from tidegate.pipeline.operations.status import Pace, Totals
from tidegate.pipeline.operations.threads import stop_threads

pytestmark = pytest.mark.system
FILE = """
[ingest.a]
key = ["/k"]
source = {kind = "file", path = "in"}
sink = {topic = "t"}
"""


class Counter:
    """A connector with a record at each read, which may raise at one of them."""

    def __init__(self, fails_at: int | None = None, error: Exception | None = None) -> None:
        self.read_count = 0
        self.acknowledged = 0
        self.closed = False
        self._fails_at = fails_at
        self._error = error

    def open(self, through: Through) -> None:
        self.read_count = (through("") or -1) + 1

    def read(self, seconds: float) -> SourceBatch | None:
        if self._error is not None and self.read_count == self._fails_at:
            raise self._error
        at = self.read_count
        self.read_count += 1
        return SourceBatch([SourceRecord(b'{"k":%d}' % at, at, str(at))], lag=7)

    def acknowledge(self, batch: SourceBatch) -> None:
        self.acknowledged += 1

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class CounterSource:
    connect: Callable[[], Connector]
    kind: ClassVar[str] = "counter"
    separator: ClassVar[str] = "/"
    place: str = "counter"

    def connector(self, name: str) -> Connector:
        return self.connect()


def counted(folder: Path, address: str, counter: Counter) -> IngestDefinition:
    [read] = definitions(folder, FILE, address)
    return replace(read, source=CounterSource(lambda: counter))


@rule("ingest-5")
def test_a_source_is_not_read_while_the_gateway_has_not_its_last_batch(tmp_path: Path) -> None:
    counter, said = Counter(), list[str]()
    with serving_here() as address:
        intake = Intake(counted(tmp_path, address, counter), said.append)
        intake.start()
        eventually(lambda: counter.acknowledged >= 3, True)
    eventually(lambda: len(said), 1)
    read, acknowledged = counter.read_count, counter.acknowledged
    assert read == acknowledged + 1
    time.sleep(0.3)
    assert (counter.read_count, counter.acknowledged) == (read, acknowledged)
    assert "trying again for 60 s" in said[0]
    assert intake.working_s is not None
    stop_threads([intake])
    assert intake.run is not None
    assert (intake.run.is_active, intake.run.failure, counter.closed) == (False, None, True)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (SourceUnreachable("it is away"), SourceUnreachable, "a: it is away"),
        (SourceLost("it is gone"), SourceLost, "a: it is gone"),
        (KeyError("x"), StreamFailed, "a: KeyError: 'x'"),
    ],
)
def test_what_a_connector_raises_ends_the_run_and_keeps_what_was_published(
    tmp_path: Path, error: Exception, kind: type[Exception], sentence: str
) -> None:
    counter = Counter(fails_at=3, error=error)
    with serving_here() as address:
        intake = Intake(counted(tmp_path, address, counter), lambda line: None)
        intake.start()
        run = intake.run
        assert run is not None
        eventually(lambda: run.is_active, False)
        assert (type(run.failure), str(run.failure)) == (kind, sentence)
        assert intake.totals == Totals(batches=3, messages=3, published=3)
        pace = run.pace(Pace())
        assert (pace.batch, pace.lag) == (3, 7)
        assert counter.closed
        intake.start()
        again = intake.run
        assert again is not None
        assert again is not run
        eventually(lambda: again.is_active, False)
        assert journal(address, "t") == [{"k": at} for at in range(3)]
