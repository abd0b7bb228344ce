"""The loop over running streams, the sinks of their status, and how queries end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest
from py4j.protocol import Py4JNetworkError

from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tidegate.clients.errors import GatewayError, GatewayProblem, GatewayUnreachable
from tidegate.clients.retry import Retry
from tidegate.pipeline.errors import PipelineError, SourceLost, StreamFailed, UsageInvalid
from tidegate.pipeline.operations import watch as module
from tidegate.pipeline.operations.shutdown import CutOff, Stop
from tidegate.pipeline.operations.status import (
    Pace,
    State,
    StreamStatus,
    Totals,
    progress_line,
)
from tidegate.pipeline.operations.supervisor import DEFAULT_OPTIONS, RunOptions
from tidegate.pipeline.operations.watch import (
    Reporter,
    StatusSink,
    ending_in_order,
    message_of,
    outliving_its_jvm,
    reporting,
    status_sinks,
    stop_queries,
    watch,
)


class Actor:
    """A stream that ends, well or badly, after so many polls."""

    def __init__(self, name: str, polls: int, failure: PipelineError | None = None) -> None:
        self.name = name
        self.failure: PipelineError | None = None
        self._polls = polls
        self._ends_with = failure

    def poll(self) -> None:
        self._polls -= 1
        if self._polls == 0:
            self.failure = self._ends_with

    @property
    def is_over(self) -> bool:
        return self._polls <= 0

    def status(self) -> StreamStatus:
        return StreamStatus(self.name, State.ENDED if self.is_over else State.RUNNING)


class Clock:
    """Each wait lets a tenth of a second pass; the end is asked for after so many."""

    def __init__(self, waits: int = 1000) -> None:
        self.now_s = 0.0
        self._waits = waits

    @property
    def asked(self) -> bool:
        return self._waits == 0

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self._waits -= 1


def watched(actors: list[Actor], clock: Clock, sinks: Sequence[StatusSink] = ()) -> list[str]:
    said: list[str] = []
    watch(cast(Any, actors), sinks, cast(Any, clock), said.append, lambda: clock.now_s)
    return said


def test_it_ends_with_the_last_stream() -> None:
    clock = Clock()
    assert watched([Actor("a", 3), Actor("b", 11)], clock) == []
    assert round(clock.now_s, 6) == 1.0


def test_it_ends_when_asked() -> None:
    clock = Clock(waits=5)
    assert watched([Actor("a", 1000)], clock) == ["stopping …"]
    assert round(clock.now_s, 6) == 0.5


@rule("pipeline-10")
def test_a_failure_is_reported_once_and_the_other_streams_go_on() -> None:
    lost = SourceLost("a: messages are gone")
    said = watched([Actor("a", 2, lost), Actor("b", 20)], Clock())
    assert said == ["a: messages are gone; the other streams go on"]


def test_the_failure_of_the_only_stream_is_left_to_the_caller() -> None:
    assert watched([Actor("a", 2, SourceLost("a: gone"))], Clock()) == []


def test_missed_reports_are_skipped() -> None:
    clock, seen = Clock(waits=6), list[float]()

    class Slow(Actor):
        def poll(self) -> None:
            clock.now_s += 9.0 if clock.now_s == 0 else 0.0

    watched([Slow("a", 1000)], clock, [StatusSink(lambda _: seen.append(clock.now_s), 2.0)])
    assert [round(at_s, 6) for at_s in seen] == [9.0]


def test_each_sink_gets_the_status_as_often_as_it_asks() -> None:
    seen: list[tuple[str, list[str]]] = []

    def sink(name: str, every_s: float) -> StatusSink:
        return StatusSink(lambda them: seen.append((name, [each.name for each in them])), every_s)

    clock = Clock(waits=31)
    watched([Actor("a", 1000)], clock, [sink("often", 0.5), sink("seldom", 3.0)])
    assert [name for name, _ in seen].count("often") == 6
    assert [name for name, _ in seen].count("seldom") == 1
    assert seen[0][1] == ["a"]


NOW = [StreamStatus("a", State.RUNNING), StreamStatus("b", State.FAILED)]


def test_the_terminal_each_gateway_and_prometheus_get_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    reported: list[tuple[str, str]] = []

    class Kept(Reporter):
        def run(self) -> None:
            pass

        def publish(self, statuses: object) -> None:
            assert statuses == NOW
            reported.append((self._gateway.base_url, "reported"))

    monkeypatch.setattr(module, "Reporter", Kept)
    port = lasting_port()
    options = RunOptions(metrics_port=port)
    with status_sinks(
        options, {"http://b", "http://a"}, lambda now: now.name, said.append
    ) as found:
        for each in found:
            each.show(NOW)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANGS_S) as answer:
            text = answer.read().decode()
    assert said == ["a", "b"]
    assert reported == [("http://a", "reported"), ("http://b", "reported")]
    assert 'tidegate_pipeline_failed{query="b"} 1.0' in text


def test_without_a_port_and_a_gateway_only_the_terminal_gets_it() -> None:
    with status_sinks(DEFAULT_OPTIONS, [], progress_line, lambda _: None) as found:
        assert len(found) == 1


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = RunOptions(metrics_port=taken.getsockname()[1])
        with (
            pytest.raises(UsageInvalid, match="no metrics on"),
            status_sinks(options, [], progress_line, lambda _: None),
        ):
            pass


def test_a_malformed_address_is_refused() -> None:
    with (
        pytest.raises(UsageInvalid, match="the address of a gateway is such as"),
        status_sinks(DEFAULT_OPTIONS, ["ftp://x"], progress_line, lambda _: None),
    ):
        pass


STATUS = StreamStatus(
    "ticks", State.WAITING, Pace(batch=6, rows_per_s=50.12345, batch_s=0.25, lag=12),
    Totals(batches=7, messages=100, published=70, refused=2),
    restarts=1, error="no room" * 1000, at_s=1.5,
)  # fmt: skip


class FakeGateway:
    """Takes reports, or is in trouble as often as it has troubles."""

    def __init__(self, *troubles: GatewayError) -> None:
        self.troubles = list(troubles)
        self.reported: list[tuple[str, str, int, dict[str, Any]]] = []
        self.asked = threading.Semaphore(0)

    @contextmanager
    def opened(self, address: str, retry: Retry) -> Iterator[FakeGateway]:
        assert retry.seconds_max == 0
        yield self

    def publish_body(
        self, topic: str, message: bytes, producer: str, sequence: int, media_type: str
    ) -> None:
        assert media_type == "application/json"
        self.asked.release()
        if self.troubles:
            raise self.troubles.pop(0)
        self.reported.append((topic, producer, sequence, json.loads(message)))


@rule("pipeline-11")
def test_a_status_is_a_message_of_its_pipeline() -> None:
    producer, number, message = message_of(STATUS)
    assert (producer, number) == ("tidegate.pipeline.ticks.state", 1500)
    assert json.loads(message) == {
        "pipeline": "ticks", "state": "waiting", "batch": 6, "batches": 7, "messages": 100,
        "published": 70, "dead_letters": 2, "rows_per_s": 50.123, "batch_s": 0.25, "lag": 12,
        "held_keys": None, "restarts": 1, "error": ("no room" * 1000)[:1000], "at_ms": 1500,
    }  # fmt: skip


def test_the_last_status_is_published_again_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway(GatewayUnreachable("nobody"))
    monkeypatch.setattr(module, "gateway_at", gateway.opened)
    said: list[str] = []
    reporter = Reporter("http://127.0.0.1:1", said.append)
    with reporting(reporter):
        reporter.publish([STATUS])
        assert gateway.asked.acquire(timeout=HANGS_S)
        reporter.publish([STATUS])
    assert gateway.reported[-1][:3] == ("tidegate.pipelines", "tidegate.pipeline.ticks.state", 1500)
    assert said == []


def test_a_gateway_that_refuses_is_asked_again_and_its_refusal_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = GatewayProblem(403, "topic-read-only", "read-only")
    gateway = FakeGateway(refusal, GatewayUnreachable("nobody"), refusal)
    monkeypatch.setattr(module, "gateway_at", gateway.opened)
    said: list[str] = []
    reporter = Reporter("http://127.0.0.1:1", said.append)
    with reporting(reporter):
        for _ in range(4):
            reporter.publish([STATUS])
            assert gateway.asked.acquire(timeout=HANGS_S)
    assert gateway.reported
    [line] = said
    assert line.startswith(
        "the gateway does not get the status of streams: the gateway at http://1"
    )
    assert line.endswith("refused: read-only [topic-read-only]")


class Query:
    """A query that is at a batch for so many polls."""

    def __init__(self, polls: int, clock: SleepClock) -> None:
        self.isActive = True
        self._until_s = clock.now_s + polls * module.POLL_EVERY_S
        self._clock = clock

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self._clock.now_s < self._until_s}

    def stop(self) -> None:
        self.isActive = False


class SleepClock:
    """Time that passes by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep)
        )

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_batch_may_end_but_is_not_waited_for_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SleepClock(monkeypatch)
    short, endless = Query(3, clock), Query(1_000_000, clock)
    stop_queries([cast(Any, short)])
    assert clock.now_s == pytest.approx(3 * module.POLL_EVERY_S)
    stop_queries([None, cast(Any, endless), cast(Any, Query(1_000_000, clock))])
    assert clock.now_s == pytest.approx(
        3 * module.POLL_EVERY_S + module.LAST_BATCH_SECONDS_MAX, abs=0.1
    )
    assert not short.isActive
    assert not endless.isActive


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (None, ["stopped", "ended", "reported"]),
        (StreamFailed("s"), ["stopped", "ended", "reported"]),
        (CutOff(130), []),
    ],
)
def test_queries_end_with_a_last_status_unless_the_start_was_cut_off(
    error: BaseException | None, done: Sequence[str]
) -> None:
    happened: list[str] = []
    stream = cast(
        Any,
        SimpleNamespace(end=lambda: happened.append("ended"), status=lambda: StreamStatus("s")),
    )
    sink = StatusSink(lambda _: happened.append("reported"), 3.0)

    def play() -> None:
        with ending_in_order(lambda: happened.append("stopped"), [stream], [sink]):
            if error is not None:
                raise error

    if error is None:
        play()
    else:
        with pytest.raises(type(error)):
            play()
    assert happened == done


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionResetError()])
def test_the_loss_of_java_is_one_sentence_unless_the_end_was_asked_for(error: Exception) -> None:
    stop = Stop()
    with pytest.raises(StreamFailed, match="Java process has ended"), outliving_its_jvm(stop):
        raise error
    stop.ask()
    with outliving_its_jvm(stop):
        raise error
