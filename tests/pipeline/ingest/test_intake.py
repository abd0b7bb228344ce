"""A source in its thread: what ends it, what it counts, and that it waits for the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tests.pipeline.ingest.ingesting import definitions, eventually, journal
from tests.support.commands import serving_here
from tests.support.rules import rule
from tidegate.pipeline.errors import EndpointUnavailable, RunFenced, SourceLost, StreamFailed
from tidegate.pipeline.ingest import intake as intake_module
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

    def __init__(
        self,
        fails_at: int | None = None,
        error: Exception | None = None,
        ends_at: int | None = None,
    ) -> None:
        self.read_count = 0
        self.acknowledged = 0
        self.closed = False
        self._fails_at = fails_at
        self._error = error
        self._ends_at = ends_at

    def open(self, through: Through) -> None:
        self.read_count = (through("") or -1) + 1

    def read(self, seconds: float) -> SourceBatch | None:
        if self._error is not None and self.read_count == self._fails_at:
            raise self._error
        if self.read_count == self._ends_at:
            time.sleep(0.01)
            return None
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
    label: str = "counter"

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


@rule("ingest-2")
def test_an_idle_run_ends_once_a_later_one_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "FENCE_SECONDS", 0.05)
    with serving_here() as address:
        earlier, later = (Intake(idle(tmp_path, address), lambda line: None) for _ in range(2))
        earlier.start()
        eventually(lambda: earlier.totals.published, 2)
        time.sleep(0.01)  # runs are numbered by the clock, in milliseconds
        later.start()
        first, second = earlier.run, later.run
        assert first is not None
        assert second is not None
        eventually(lambda: first.is_active, False)
        assert isinstance(first.failure, RunFenced)
        assert second.is_active
        stop_threads([later])


@rule("ingest-2")
def test_a_start_after_the_clock_was_set_back_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "FENCE_SECONDS", 0.05)
    with serving_here() as address:
        earlier, later = (Intake(idle(tmp_path, address), lambda line: None) for _ in range(2))
        earlier.start()
        eventually(lambda: earlier.totals.published, 2)
        set_back = SimpleNamespace(time=lambda: time.time() - 3_600, monotonic=time.monotonic)
        monkeypatch.setattr(intake_module, "time", set_back)
        later.start()
        first, second = earlier.run, later.run
        assert first is not None
        assert second is not None
        eventually(lambda: first.is_active, False)
        assert isinstance(first.failure, RunFenced)
        assert second.is_active
        stop_threads([later])


def test_a_topic_that_is_created_without_a_key_is_said_once(tmp_path: Path) -> None:
    with serving_here() as address:
        said: list[str] = []
        intake = Intake(replace(idle(tmp_path, address), spec=None), said.append)
        for _ in range(2):
            intake.start()
            run = intake.run
            assert run is not None
            eventually(partial(getattr, run, "is_starting"), False)
            stop_threads([intake])
    assert len(said) == 1
    assert said[0].startswith("a: the topic t is created without a key")


def idle(folder: Path, address: str) -> IngestDefinition:
    """A definition of a source that has two records."""
    return counted(folder, address, Counter(ends_at=2))


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (EndpointUnavailable("it is away"), EndpointUnavailable, "a: it is away"),
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
