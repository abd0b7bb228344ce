"""Whatever ends a command, its queries end between two batches, and it is told."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from tidegate.pipeline.errors import StreamFailed
from tidegate.pipeline.operations import shutdown as module
from tidegate.pipeline.operations.shutdown import (
    CutOff,
    Stop,
    ending_in_order,
    outliving_its_jvm,
    stop_queries,
)
from tidegate.pipeline.operations.status import StreamStatus
from tidegate.pipeline.operations.watch import StatusSink


class Query:
    """A query that is at a batch for so many looks."""

    def __init__(self, looks: int, clock: Clock) -> None:
        self.isActive = True
        self._until_s = clock.now_s + looks * module.LOOK_EVERY_S
        self._clock = clock

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self._clock.now_s < self._until_s}

    def stop(self) -> None:
        self.isActive = False


class Clock:
    """Time that passes by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep)
        )

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_batch_is_let_end_and_one_that_does_not_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    short, endless = Query(3, clock), Query(1_000_000, clock)
    stop_queries([cast(Any, short)])
    assert clock.now_s == pytest.approx(3 * module.LOOK_EVERY_S)
    stop_queries([None, cast(Any, endless), cast(Any, Query(1_000_000, clock))])
    assert clock.now_s == pytest.approx(
        3 * module.LOOK_EVERY_S + module.LAST_BATCH_SECONDS_MAX, abs=0.1
    )
    assert not short.isActive
    assert not endless.isActive


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (None, ["stopped", "ended", "told"]),
        (StreamFailed("s"), ["stopped", "ended", "told"]),
        (CutOff(130), []),
    ],
)
def test_queries_end_and_it_is_told_unless_the_start_was_cut_off(
    error: BaseException | None, done: Sequence[str]
) -> None:
    happened: list[str] = []
    stream = cast(
        Any,
        SimpleNamespace(end=lambda: happened.append("ended"), condition=lambda: StreamStatus("s")),
    )
    onlooker = StatusSink(lambda _: happened.append("told"), 3.0)

    def play() -> None:
        with ending_in_order(lambda: happened.append("stopped"), [stream], [onlooker]):
            if error is not None:
                raise error

    if error is None:
        play()
    else:
        with pytest.raises(type(error)):
            play()
    assert happened == done


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionResetError()])
def test_java_that_ends_before_us_is_one_sentence_unless_we_end_too(error: Exception) -> None:
    stop = Stop()
    with pytest.raises(StreamFailed, match="Java process has ended"), outliving_its_jvm(stop):
        raise error
    stop.ask()
    with outliving_its_jvm(stop):
        raise error
