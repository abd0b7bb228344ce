"""Streams are watched until all are over; who wants to know is told how they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tests.support.rules import rule
from tidegate.pipeline.errors import PipelineError, SourceLost
from tidegate.pipeline.operations.status import State, StreamStatus
from tidegate.pipeline.operations.watch import StatusSink, watch


class Actor:
    """A stream that ends, well or badly, after so many looks."""

    def __init__(self, name: str, looks: int, failure: PipelineError | None = None) -> None:
        self.name = name
        self.failure: PipelineError | None = None
        self._looks = looks
        self._ends_with = failure

    def look(self) -> None:
        self._looks -= 1
        if self._looks == 0:
            self.failure = self._ends_with

    @property
    def is_over(self) -> bool:
        return self._looks <= 0

    def condition(self) -> StreamStatus:
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


def watched(actors: list[Actor], clock: Clock, onlookers: Sequence[StatusSink] = ()) -> list[str]:
    said: list[str] = []
    watch(cast(Any, actors), onlookers, clock, said.append, lambda: clock.now_s)
    return said


def test_it_ends_with_the_last_stream() -> None:
    clock = Clock()
    assert watched([Actor("a", 3), Actor("b", 11)], clock) == []
    assert round(clock.now_s, 6) == 1.0


def test_it_ends_when_asked() -> None:
    clock = Clock(waits=5)
    watched([Actor("a", 1000)], clock)
    assert round(clock.now_s, 6) == 0.5


@rule("pipeline-10")
def test_one_that_fails_is_told_once_and_the_others_go_on() -> None:
    lost = SourceLost("a: messages are gone")
    said = watched([Actor("a", 2, lost), Actor("b", 20)], Clock())
    assert said == ["a: messages are gone; the other streams go on"]


def test_the_only_one_that_fails_is_left_to_whoever_asked() -> None:
    assert watched([Actor("a", 2, SourceLost("a: gone"))], Clock()) == []


def test_who_was_not_told_for_a_while_is_told_once() -> None:
    clock, seen = Clock(waits=6), list[float]()

    class Slow(Actor):
        def look(self) -> None:
            clock.now_s += 9.0 if clock.now_s == 0 else 0.0

    watched([Slow("a", 1000)], clock, [StatusSink(lambda _: seen.append(clock.now_s), 2.0)])
    assert [round(at_s, 6) for at_s in seen] == [9.0]


def test_onlookers_are_told_as_often_as_they_like() -> None:
    seen: list[tuple[str, list[str]]] = []

    def onlooker(name: str, every_s: float) -> StatusSink:
        return StatusSink(lambda them: seen.append((name, [each.name for each in them])), every_s)

    clock = Clock(waits=31)
    watched([Actor("a", 1000)], clock, [onlooker("often", 0.5), onlooker("seldom", 3.0)])
    assert [name for name, _ in seen].count("often") == 6
    assert [name for name, _ in seen].count("seldom") == 1
    assert seen[0][1] == ["a"]
