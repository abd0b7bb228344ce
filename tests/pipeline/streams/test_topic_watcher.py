"""Streams of `engine: spark` topics start and stop as the gateway's list of topics changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.pipeline.journals import Journals
from tests.support.rules import rule
from tidegate.pipeline.connection import AT_ONCE, PATIENT
from tidegate.pipeline.definitions.spark_topics import streams_of
from tidegate.pipeline.errors import GatewayUnreachable
from tidegate.pipeline.streams import topic_watcher
from tidegate.pipeline.streams.topic_watcher import Fillable, SparkTopicWatcher, TopicList

PX = {
    "topic": "px",
    "key": ["/id"],
    "retain": True,
    "epoch": "e1",
    "merge": "replace",
    "source": None,
}


def declared(name: str, epoch: str = "e2", **source: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("filter", "grouping", "projection"))
    asked = {"topic": "px", "interval": "1s", "engine": "spark", **nothing, **source}
    return {"topic": name, "key": ["/id"], "retain": True, "epoch": epoch, "source": asked}


@dataclass
class FakeRunner:
    """Records the calls of a watcher to its runner; lists topics, and has a clock set by hand."""

    topics: list[dict[str, Any]] = field(default_factory=lambda: [PX])
    restarts: bool = True
    now_s: float = 0.0
    is_out: bool = False
    said: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = SparkTopicWatcher(
            self._fillable,
            cast(Any, self),
            self.said.append,
            restarts=self.restarts,
            monotonic=lambda: self.now_s,
        )

    def _fillable(self) -> Fillable:
        if self.is_out:
            raise GatewayUnreachable("nobody answers")
        return streams_of(self.topics, "http://g", Path("/c"), {"taken"})

    def join(self, definition: Any) -> None:
        self.calls.append(f"join {definition.sink.topic} {definition.interval_text}")

    def leave(self, name: str, *, forget: bool) -> None:
        self.calls.append(f"leave {name.rpartition('-')[0]}{' for good' if forget else ''}")

    def lost(self) -> list[str]:
        return self.gone

    def poll_with(self, *topics: dict[str, Any]) -> list[str]:
        """Replace the topics, poll two seconds later, and return the calls of the runner."""
        self.topics = [PX, *topics]
        self.calls.clear()
        self.now_s += 2.0
        self.watcher.poll()
        return self.calls


@rule("pipeline-14")
def test_streams_start_and_stop_with_their_topics() -> None:
    fake = FakeRunner([PX, declared("a")])
    fake.watcher.begin()
    assert fake.calls == ["join a 1s"]
    assert fake.poll_with(declared("a")) == []
    assert fake.poll_with(declared("a"), declared("b")) == ["join b 1s"]
    assert fake.poll_with(declared("b")) == ["leave a for good"]
    assert fake.poll_with(declared("b", "e9")) == ["leave b for good", "join b 1s"]


@rule("pipeline-13")
def test_another_interval_continues_and_another_source_begins_again() -> None:
    fake = FakeRunner([PX, declared("a")])
    fake.watcher.begin()
    assert fake.poll_with(declared("a", interval="2s")) == ["leave a", "join a 2s"]
    again = ["leave a for good", "join a 2s"]
    assert fake.poll_with(declared("a", interval="2s", filter="/n > 1")) == again


@rule("pipeline-14")
def test_the_list_is_read_every_two_seconds_and_streams_run_on_without_it() -> None:
    fake = FakeRunner([PX, declared("a")])
    fake.watcher.begin()
    fake.topics, fake.now_s = [PX], 1.9
    fake.watcher.poll()
    assert fake.calls == ["join a 1s"]
    fake.is_out = True
    assert fake.poll_with() == fake.poll_with() == []
    assert fake.said == ["cannot list the topics; running streams go on: nobody answers"]
    fake.is_out = False
    assert fake.poll_with() == ["leave a for good"]


@rule("pipeline-14")
def test_no_topic_is_said_once_and_waited_for() -> None:
    fake = FakeRunner()
    fake.watcher.begin()
    fake.poll_with()
    assert fake.said == ["no topic says engine: spark; waiting for one"]
    assert fake.poll_with(declared("a")) == ["join a 1s"]
    fake.poll_with()
    assert len(fake.said) == 2


@rule("pipeline-13")
@pytest.mark.parametrize("restarts", [True, False])
def test_a_stream_that_lost_its_source_begins_with_the_records(restarts: bool) -> None:
    fake = FakeRunner([PX, declared("a")], restarts=restarts)
    fake.watcher.begin()
    [definition], _ = streams_of([PX, declared("a")], "http://g", Path("/c"), ())
    fake.gone = [definition.name]
    assert fake.poll_with(declared("a")) == (["leave a for good", "join a 1s"] if restarts else [])


@rule("pipeline-12")
def test_topics_of_the_file_are_left_and_unfit_ones_are_reported_once() -> None:
    other = {**declared("other"), "key": ["/venue"]}
    fake = FakeRunner([PX, declared("taken"), other])
    fake.watcher.begin()
    assert fake.poll_with(other) == []
    assert [line.partition(":")[0] for line in fake.said] == [
        "topic other is not filled",
        "no topic says engine",
    ]


@rule("pipeline-14")
def test_pages_are_read_to_the_end_and_known_ones_are_kept(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watcher, "FIRST_PAGE", "/v1/topics?limit=2")
    for name in "abc":
        journals.topic(name)
    listed = TopicList(journals.address)
    assert [topic["topic"] for topic in listed.read(PATIENT)] == ["a", "b", "c"]
    first = listed.read(AT_ONCE)
    assert listed.read(AT_ONCE)[0] is first[0]
    journals.topic("d")
    again = listed.read(AT_ONCE)
    assert [topic["topic"] for topic in again] == ["a", "b", "c", "d"]
    assert again[0] is first[0]
    assert again[2] is not first[2]
    assert journals.lists == 8


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(GatewayUnreachable):
        TopicList("http://127.0.0.1:9").read(AT_ONCE)
