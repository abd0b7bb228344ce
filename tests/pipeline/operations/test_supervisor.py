"""A stream that fails is started again, later each time; what no start mends ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.rules import rule
from tidegate.pipeline.errors import (
    CheckpointMismatch,
    DefinitionInvalid,
    GatewayRefused,
    GatewayUnreachable,
    PipelineError,
    RunFenced,
    SourceLost,
    SparkUnavailable,
    StreamFailed,
    WorkerLate,
)
from tidegate.pipeline.operations.status import Pace, State, Totals
from tidegate.pipeline.operations.supervisor import (
    LATE_STARTS_MAX,
    START_SECONDS_MAX,
    StartGate,
    Supervisor,
)


@dataclass
class Play:
    """A stream whose query fails as it is told, under a clock that is set by hand."""

    restarts: bool = True
    now_s: float = 0.0
    starts: int = 0
    fails_to_start: PipelineError | None = None
    said: list[str] = field(default_factory=list)
    gate: StartGate = field(default_factory=StartGate)
    chance: float = 0.0
    mended: type[PipelineError] | None = None

    def __post_init__(self) -> None:
        self.stream = SimpleNamespace(
            totals=Totals(),
            held_keys=5,
            merger_failures=2,
            working_s=None,
            query=None,
        )
        self.supervised = Supervisor(
            "s",
            cast(Any, self.stream),
            self._start,
            restarts=self.restarts,
            say=self.said.append,
            gate=self.gate,
            mends=lambda error: type(error) is self.mended,
            monotonic=lambda: self.now_s,
            chance=lambda: self.chance,
        )

    def _start(self) -> None:
        self.starts += 1
        if self.fails_to_start is not None:
            raise self.fails_to_start
        self.stream.query = query(active=True, exception=None)

    def fail(self, kind: type[PipelineError], said: str = "no room") -> None:
        text = f"Traceback\npipeline.errors.{kind.__name__}: {said}\n"
        if kind is WorkerLate:
            text = "Python worker failed to connect back."
        self.stream.query = query(active=False, exception=text)
        self.supervised.look()

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.supervised.look()

    @property
    def state(self) -> State:
        return self.supervised.status().state


def query(*, active: bool, exception: str | None, message: str = "") -> SimpleNamespace:
    return SimpleNamespace(
        isActive=active,
        exception=lambda: exception,
        lastProgress=None,
        status={"message": message},
    )


@rule("pipeline-9")
def test_a_failed_stream_is_started_again_after_a_pause() -> None:
    play = Play()
    play.supervised.begin()
    play.fail(GatewayUnreachable)
    assert play.said == ["s: no room; it is started again in 1 s"]
    play.pass_s(0.9)
    assert (play.starts, play.state) == (1, State.WAITING)
    play.pass_s(0.1)
    assert (play.starts, play.state) == (2, State.RUNNING)
    now = play.supervised.status()
    assert (now.restarts, now.error, now.held) == (1, "s: no room", 5)
    assert now.merger_failures == 2
    assert not play.supervised.is_over


def test_a_stream_at_rest_tells_of_its_newest_batch() -> None:
    play = Play()
    play.supervised.begin()
    batch = {"batchId": 7, "durationMs": {"triggerExecution": 900, "addBatch": 800}}
    idle = {"batchId": 8, "durationMs": {"triggerExecution": 4}}
    for play.stream.query.lastProgress in (batch, idle):
        assert play.supervised.status().pace == Pace(batch=7, batch_s=0.9)


def test_pauses_grow_until_a_batch_was_done() -> None:
    play = Play()
    play.supervised.begin()
    for pause in (1, 2, 4):
        play.fail(StreamFailed)
        play.pass_s(pause)
    assert play.starts == 4
    play.stream.totals = Totals(batches=5)
    play.fail(StreamFailed)
    assert play.said[-1].endswith("started again in 1 s")


@rule("pipeline-9")
def test_pauses_are_spread_and_each_stream_has_its_own() -> None:
    """What has failed at one moment is not all started again at another."""
    play = Play(chance=0.4)
    play.supervised.begin()
    play.fail(StreamFailed)
    play.pass_s(1.1)
    assert play.starts == 1
    play.pass_s(0.1)
    assert play.starts == 2


@rule("pipeline-9")
def test_streams_are_started_again_one_by_one() -> None:
    gate = StartGate()
    first, second = Play(gate=gate), Play(gate=gate)
    for play in (first, second):
        play.supervised.begin()
        play.fail(StreamFailed)
    first.pass_s(1)
    first.stream.query.status = {"message": "Initializing sources"}
    second.pass_s(1)
    assert (first.starts, second.starts) == (2, 1)
    first.stream.query.status = {"message": "Waiting for data to arrive"}
    second.pass_s(0)
    assert second.starts == 2


def test_one_that_is_looked_at_before_it_was_begun_starts_at_its_turn() -> None:
    play = Play()
    play.gate.take(cast(Any, query(active=True, exception=None, message="Initializing sources")))
    play.pass_s(0)
    assert (play.starts, play.state) == (0, State.STARTING)
    play.gate.take(None)
    play.pass_s(0)
    assert (play.starts, play.state) == (1, State.RUNNING)


@rule("pipeline-10")
def test_a_busy_machine_is_given_time_even_where_nothing_is_started_again() -> None:
    play = Play(restarts=False)
    play.supervised.begin()
    for _ in range(LATE_STARTS_MAX):
        play.fail(WorkerLate)
        assert play.state is State.WAITING
        play.pass_s(60)
    play.fail(WorkerLate)
    assert play.state is State.FAILED


@rule("pipeline-10")
def test_a_busy_machine_is_given_time_for_a_first_start() -> None:
    play = Play(restarts=False, fails_to_start=WorkerLate("s: too much is going on"))
    play.supervised.begin()
    assert play.said == ["s: too much is going on; it is started again in 1 s"]
    play.fails_to_start = None
    play.pass_s(1)
    assert play.state is State.RUNNING


@pytest.mark.parametrize(("restarts", "state"), [(True, State.WAITING), (False, State.FAILED)])
def test_a_stream_may_know_what_mends_it(restarts: bool, state: State) -> None:
    play = Play(mended=SourceLost, restarts=restarts)
    play.supervised.begin()
    play.fail(SourceLost)
    assert play.state is state
    play = Play(mended=SourceLost)
    play.supervised.begin()
    play.fail(CheckpointMismatch)
    assert play.state is State.FAILED


def test_a_start_that_fails_counts_as_well() -> None:
    play = Play()
    play.supervised.begin()
    play.fail(StreamFailed)
    play.fails_to_start = GatewayUnreachable("s: nobody answers")
    play.pass_s(1)
    assert play.said[-1] == "s: nobody answers; it is started again in 2 s"
    play.fails_to_start = CheckpointMismatch("s: not its own")
    play.pass_s(2)
    assert play.state is State.FAILED
    assert play.supervised.failure is play.fails_to_start


@rule("pipeline-10")
@pytest.mark.parametrize("kind", [CheckpointMismatch, SourceLost, RunFenced, SparkUnavailable])
def test_what_no_start_mends_ends_it_at_once(kind: type[PipelineError]) -> None:
    play = Play()
    play.supervised.begin()
    play.fail(kind)
    assert play.state is State.FAILED
    assert type(play.supervised.failure) is kind
    assert play.said == []
    play.pass_s(100)
    assert play.starts == 1


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
    play = Play(restarts=False)
    play.supervised.begin()
    play.fail(GatewayUnreachable)
    assert play.state is State.FAILED


def test_a_first_start_that_fails_is_raised() -> None:
    play = Play(fails_to_start=GatewayUnreachable("nobody"))
    with pytest.raises(GatewayUnreachable):
        play.supervised.begin()


def test_one_that_was_stopped_has_ended_unless_it_had_failed() -> None:
    play = Play()
    play.supervised.begin()
    play.supervised.end()
    assert play.state is State.ENDED
    play = Play()
    play.supervised.begin()
    play.fail(SourceLost)
    play.supervised.end()
    assert play.state is State.FAILED


def test_a_query_that_has_read_all_has_ended() -> None:
    play = Play()
    play.supervised.begin()
    play.stream.query.isActive = False
    play.pass_s(1)
    assert play.supervised.is_over
    assert play.state is State.ENDED
    assert play.supervised.failure is None


def starting_query(message: str, *, active: bool = True) -> Any:
    return SimpleNamespace(isActive=active, status={"message": message})


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
    gate.take(starting_query(message, active=active))
    assert gate.is_free() is is_free


def test_the_gate_opens_when_spark_gives_up() -> None:
    now = [0.0]
    gate = StartGate(lambda: now[0])
    gate.take(starting_query("Initializing sources"))
    now[0] = START_SECONDS_MAX - 0.1
    assert not gate.is_free()
    now[0] = START_SECONDS_MAX
    assert gate.is_free()
