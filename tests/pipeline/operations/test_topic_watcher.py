"""Streams come and go with the topics that say `engine: spark`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.pipeline.definitions.spark_topics import streams_of
from tidegate.pipeline.errors import GatewayUnreachable
from tidegate.pipeline.operations.topic_watcher import Fillable, SparkTopicWatcher

PX = {
    "topic": "px", "key": ["/id"], "retain": True, "epoch": "e1", "merge": "replace",
    "source": None,
}  # fmt: skip


def declared(name: str, epoch: str = "e2", **source: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("filter", "grouping", "projection"))
    asked = {"topic": "px", "interval": "1s", "engine": "spark", **nothing, **source}
    return {"topic": name, "key": ["/id"], "retain": True, "epoch": epoch, "source": asked}


@dataclass
class Play:
    """A gateway's list, the crew, and what each was told; a clock that is set by hand."""

    topics: list[dict[str, Any]] = field(default_factory=lambda: [PX])
    restarts: bool = True
    now_s: float = 0.0
    is_out: bool = False
    said: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.roster = SparkTopicWatcher(
            self._fillable, self, self.said.append,
            restarts=self.restarts, monotonic=lambda: self.now_s,
        )  # fmt: skip

    def _fillable(self) -> Fillable:
        if self.is_out:
            raise GatewayUnreachable("nobody answers")
        return streams_of(self.topics, "http://g", Path("/c"), {"taken"})

    def join(self, definition: Any) -> None:
        self.told.append(f"join {definition.sink.topic} {definition.interval_text}")

    def leave(self, name: str, *, forget: bool) -> None:
        self.told.append(f"leave {name.rpartition('-')[0]}{' for good' if forget else ''}")

    def lost(self) -> list[str]:
        return self.gone

    def look(self, *topics: dict[str, Any]) -> list[str]:
        """What the crew is told after two seconds in which topics have become these."""
        self.topics = [PX, *topics]
        self.told.clear()
        self.now_s += 2.0
        self.roster.look()
        return self.told


@rule("pipeline-14")
def test_topics_are_filled_as_they_come_and_go() -> None:
    play = Play([PX, declared("a")])
    play.roster.begin()
    assert play.told == ["join a 1s"]
    assert play.look(declared("a")) == []
    assert play.look(declared("a"), declared("b")) == ["join b 1s"]
    assert play.look(declared("b")) == ["leave a for good"]
    assert play.look(declared("b", "e9")) == ["leave b for good", "join b 1s"]


@rule("pipeline-13")
def test_another_interval_goes_on_and_another_source_begins_anew() -> None:
    play = Play([PX, declared("a")])
    play.roster.begin()
    assert play.look(declared("a", interval="2s")) == ["leave a", "join a 2s"]
    again = ["leave a for good", "join a 2s"]
    assert play.look(declared("a", interval="2s", filter="/n > 1")) == again


@rule("pipeline-14")
def test_the_list_is_read_every_two_seconds_and_what_runs_goes_on_without_it() -> None:
    play = Play([PX, declared("a")])
    play.roster.begin()
    play.topics, play.now_s = [PX], 1.9
    play.roster.look()
    assert play.told == ["join a 1s"]
    play.is_out = True
    assert play.look() == play.look() == []
    assert play.said == ["the topics are not told, what runs goes on: nobody answers"]
    play.is_out = False
    assert play.look() == ["leave a for good"]


@rule("pipeline-14")
def test_no_topic_is_said_once_and_waited_for() -> None:
    play = Play()
    play.roster.begin()
    play.look()
    assert play.said == ["no topic says engine: spark; waiting for one"]
    assert play.look(declared("a")) == ["join a 1s"]
    play.look()
    assert len(play.said) == 2


@rule("pipeline-13")
@pytest.mark.parametrize("restarts", [True, False])
def test_what_is_lost_begins_anew_with_the_records(restarts: bool) -> None:
    play = Play([PX, declared("a")], restarts=restarts)
    play.roster.begin()
    [definition], _ = streams_of([PX, declared("a")], "http://g", Path("/c"), ())
    play.gone = [definition.name]
    assert play.look(declared("a")) == (["leave a for good", "join a 1s"] if restarts else [])


@rule("pipeline-12")
def test_what_a_file_fills_is_left_and_what_cannot_be_filled_is_said_once() -> None:
    other = {**declared("other"), "key": ["/venue"]}
    play = Play([PX, declared("taken"), other])
    play.roster.begin()
    assert play.look(other) == []
    assert [line.partition(":")[0] for line in play.said] == [
        "topic other is not filled",
        "no topic says engine",
    ]
