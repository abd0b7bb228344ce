"""A stream that fails is restarted, later each time; a failure that no restart fixes ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.pipeline.errors import (
    CheckpointUnusable,
    DefinitionInvalid,
    GatewayRefused,
    GatewayUnreachable,
    InUse,
    PipelineError,
    RunFenced,
    SourceLost,
    SparkUnavailable,
    StreamFailed,
    WorkerLate,
)
from tidegate.pipeline.operations.spark_run import SparkRun
from tidegate.pipeline.operations.status import Pace, State, Totals
from tidegate.pipeline.operations.supervisor import (
    LATE_STARTS_MAX,
    START_SECONDS_MAX,
    StartGate,
    Supervisor,
)


@dataclass
class FakeSparkStream:
    """What a supervisor sees of a stream."""

    name: str
    totals: Totals = field(default_factory=Totals)
    held_keys: int | None = 5
    merger_failures: int | None = 2
    working_s: float | None = None
    query: Any = None

    @property
    def run(self) -> SparkRun | None:
        return SparkRun.of(self.name, self.query, self.totals.newest)


@dataclass
class FakeStream:
    """A stream whose query fails on request, under a clock that is set by hand."""

    name: str = "s"
    restarts: bool = True
    now_s: float = 0.0
    starts: int = 0
    fails_to_start: PipelineError | None = None
    said: list[str] = field(default_factory=list)
    gate: StartGate = field(default_factory=StartGate)
    chance: float | None = 0.0  # None: drawn, seeded by the name
    mended: type[PipelineError] | None = None

    def __post_init__(self) -> None:
        self.stream = FakeSparkStream(self.name)
        chance = self.chance
        self.supervised = Supervisor(
            self.name,
            self.stream,
            self._start,
            restarts=self.restarts,
            say=self.said.append,
            gate=self.gate,
            mends=lambda error: type(error) is self.mended,
            monotonic=lambda: self.now_s,
            chance=None if chance is None else lambda: chance,
        )

    def _start(self) -> None:
        self.starts += 1
        if self.fails_to_start is not None:
            raise self.fails_to_start
        self.stream.query = query()

    def fail(self, kind: type[PipelineError], said: str = "no room") -> None:
        text = f"Traceback\npipeline.errors.{kind.__name__}: {said}\n"
        if kind is WorkerLate:
            text = "Python worker failed to connect back."
        self.stream.query = query(active=False, exception=text)
        self.supervised.poll()

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.supervised.poll()

    @property
    def state(self) -> State:
        return self.supervised.status().state


def query(*, active: bool = True, exception: str | None = None, message: str = "") -> Any:
    return SimpleNamespace(
        isActive=active,
        exception=lambda: exception,
        lastProgress=None,
        status={"message": message},
    )


def spark_run(*, active: bool = True, message: str) -> SparkRun:
    return SparkRun("s", query(active=active, message=message))


@rule("pipeline-9")
def test_a_failed_stream_is_started_again_after_a_pause() -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    fake.fail(GatewayUnreachable)
    assert fake.said == ["s: no room; it is started again in 1 s"]
    fake.pass_s(0.9)
    assert (fake.starts, fake.state) == (1, State.WAITING)
    fake.pass_s(0.1)
    assert (fake.starts, fake.state) == (2, State.RUNNING)
    now = fake.supervised.status()
    assert (now.restarts, now.error, now.held) == (1, "s: no room", 5)
    assert now.merger_failures == 2
    assert not fake.supervised.is_over


def test_a_stream_at_rest_shows_its_newest_batch() -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    batch = {"batchId": 7, "durationMs": {"triggerExecution": 900, "addBatch": 800}}
    idle = {"batchId": 8, "durationMs": {"triggerExecution": 4}}
    for progress in (batch, idle):
        fake.stream.query.lastProgress = progress
        assert fake.supervised.status().pace == Pace(batch=7, batch_s=0.9)


def test_pauses_grow_until_a_batch_was_done() -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    for pause in (1, 2, 4):
        fake.fail(StreamFailed)
        fake.pass_s(pause)
    assert fake.starts == 4
    fake.stream.totals = Totals(batches=5)
    fake.fail(StreamFailed)
    assert fake.said[-1].endswith("started again in 1 s")


@rule("pipeline-9")
def test_jitter_spreads_restarts() -> None:
    early, late = FakeStream(chance=0.0), FakeStream(chance=0.4)
    for fake in (early, late):
        fake.supervised.start_first()
        fake.fail(StreamFailed)
        fake.pass_s(1.1)
    assert (early.starts, late.starts) == (2, 1)
    late.pass_s(0.1)
    assert late.starts == 2


@rule("pipeline-9")
def test_each_stream_has_pauses_of_its_own() -> None:
    """The name seeds the jitter: it differs from stream to stream, and is the same in each run."""
    pauses = {name: pause_after_failure(name) for name in ("a", "b", "c")}
    assert len(set(pauses.values())) == 3
    assert pauses == {name: pause_after_failure(name) for name in pauses}
    assert all(1 <= pause <= 1.5 for pause in pauses.values())


def pause_after_failure(name: str) -> float:
    """Return the seconds for which a stream waits after its first failure, in steps of 1 ms."""
    fake = FakeStream(name=name, chance=None)
    fake.supervised.start_first()
    fake.fail(StreamFailed)
    while fake.starts == 1 and fake.now_s < 10:
        fake.pass_s(0.001)
    return fake.now_s


@rule("pipeline-9")
def test_streams_are_started_again_one_by_one() -> None:
    gate = StartGate()
    first, second = FakeStream(gate=gate), FakeStream(gate=gate)
    for fake in (first, second):
        fake.supervised.start_first()
        fake.fail(StreamFailed)
    first.pass_s(1)
    first.stream.query.status = {"message": "Initializing sources"}
    second.pass_s(1)
    assert (first.starts, second.starts) == (2, 1)
    first.stream.query.status = {"message": "Waiting for data to arrive"}
    second.pass_s(0)
    assert second.starts == 2


def test_a_stream_that_is_checked_before_its_start_is_started_later() -> None:
    fake = FakeStream()
    fake.gate.close_for(spark_run(message="Initializing sources"))
    fake.pass_s(0)
    assert (fake.starts, fake.state) == (0, State.STARTING)
    fake.gate.close_for(None)
    fake.pass_s(0)
    assert (fake.starts, fake.state) == (1, State.RUNNING)


@rule("pipeline-10")
def test_a_busy_machine_is_given_time_even_where_nothing_is_started_again() -> None:
    fake = FakeStream(restarts=False)
    fake.supervised.start_first()
    for _ in range(LATE_STARTS_MAX):
        fake.fail(WorkerLate)
        assert fake.state is State.WAITING
        fake.pass_s(60)
    fake.fail(WorkerLate)
    assert fake.state is State.FAILED


@rule("pipeline-10")
def test_a_busy_machine_is_given_time_for_a_first_start() -> None:
    fake = FakeStream(restarts=False, fails_to_start=WorkerLate("s: too much is going on"))
    fake.supervised.start_first()
    assert fake.said == ["s: too much is going on; it is started again in 1 s"]
    fake.fails_to_start = None
    fake.pass_s(1)
    assert fake.state is State.RUNNING


@pytest.mark.parametrize(("restarts", "state"), [(True, State.WAITING), (False, State.FAILED)])
def test_a_stream_may_know_what_mends_it(restarts: bool, state: State) -> None:
    fake = FakeStream(mended=SourceLost, restarts=restarts)
    fake.supervised.start_first()
    fake.fail(SourceLost)
    assert fake.state is state
    fake = FakeStream(mended=SourceLost)
    fake.supervised.start_first()
    fake.fail(CheckpointUnusable)
    assert fake.state is State.FAILED


def test_a_start_that_fails_counts_as_well() -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    fake.fail(StreamFailed)
    fake.fails_to_start = GatewayUnreachable("s: nobody answers")
    fake.pass_s(1)
    assert fake.said[-1] == "s: nobody answers; it is started again in 2 s"
    fake.fails_to_start = CheckpointUnusable("s: not its own")
    fake.pass_s(2)
    assert fake.state is State.FAILED
    assert fake.supervised.failure is fake.fails_to_start


@rule("pipeline-10")
@pytest.mark.parametrize(
    "kind", [CheckpointUnusable, InUse, SourceLost, RunFenced, SparkUnavailable]
)
def test_what_no_start_mends_ends_it_at_once(kind: type[PipelineError]) -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    fake.fail(kind)
    assert fake.state is State.FAILED
    assert type(fake.supervised.failure) is kind
    assert fake.said == []
    fake.pass_s(100)
    assert fake.starts == 1


@rule("pipeline-10")
@pytest.mark.parametrize(
    ("kind", "may_pass"),
    [
        (GatewayRefused, True),
        (GatewayUnreachable, True),
        (StreamFailed, True),
        (DefinitionInvalid, False),
        (RunFenced, False),
        (SourceLost, False),
    ],
)
def test_which_errors_a_start_may_mend(kind: type[PipelineError], may_pass: bool) -> None:
    assert kind.may_pass is may_pass


def test_without_restarts_any_failure_is_the_end() -> None:
    fake = FakeStream(restarts=False)
    fake.supervised.start_first()
    fake.fail(GatewayUnreachable)
    assert fake.state is State.FAILED


def test_a_first_start_that_fails_is_raised() -> None:
    fake = FakeStream(fails_to_start=GatewayUnreachable("nobody"))
    with pytest.raises(GatewayUnreachable):
        fake.supervised.start_first()


def test_one_that_was_stopped_has_ended_unless_it_had_failed() -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    fake.supervised.end()
    assert fake.state is State.ENDED
    fake = FakeStream()
    fake.supervised.start_first()
    fake.fail(SourceLost)
    fake.supervised.end()
    assert fake.state is State.FAILED


def test_a_query_that_has_read_all_has_ended() -> None:
    fake = FakeStream()
    fake.supervised.start_first()
    fake.stream.query.isActive = False
    fake.pass_s(1)
    assert fake.supervised.is_over
    assert fake.state is State.ENDED
    assert fake.supervised.failure is None


@rule("pipeline-9")
@pytest.mark.parametrize(
    ("message", "active", "is_free"),
    [
        ("Initializing StreamExecution", True, False),
        ("Initializing sources", True, False),
        ("Initializing sources", False, True),
        ("Getting offsets from TopicStream", True, True),
        ("Waiting for next trigger", True, True),
    ],
)
def test_a_turn_is_over_when_the_query_reads_or_has_ended(
    message: str, active: bool, is_free: bool
) -> None:
    gate = StartGate()
    assert gate.is_free()
    gate.close_for(spark_run(message=message, active=active))
    assert gate.is_free() is is_free


def test_the_gate_opens_when_spark_gives_up() -> None:
    now = [0.0]
    gate = StartGate(lambda: now[0])
    gate.close_for(spark_run(message="Initializing sources"))
    now[0] = START_SECONDS_MAX - 0.1
    assert not gate.is_free()
    now[0] = START_SECONDS_MAX
    assert gate.is_free()
