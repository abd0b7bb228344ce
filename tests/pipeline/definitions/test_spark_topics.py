"""The streams that fill topics with `engine: spark`, derived from the topics' definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.merger import MERGER
from tests.support.rules import rule
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.spark_topics import Declaration, declarations, streams_of
from tidegate.pipeline.definitions.stream import TopicSink
from tidegate.pipeline.definitions.toml import STREAM
from tidegate.pipeline.errors import DefinitionInvalid

PX: dict[str, Any] = {
    "topic": "px",
    "key": ["/id"],
    "retain": True,
    "epoch": "e1",
    "merge": "replace",
    "source": None,
}
NOTHING = dict.fromkeys(("filter", "grouping", "projection"))
SOURCE = {"topic": "px", "interval": "500ms", "engine": "spark", **NOTHING}
SHAPE: dict[str, Any] = {"grouping": ["/venue"], "projection": ["SUM(/qty) AS /total"]}
SLOW: dict[str, Any] = {
    "topic": "px.slow",
    "key": ["/id"],
    "retain": True,
    "epoch": "e2",
    "source": SOURCE,
}


def stream(topic: dict[str, Any] = SLOW, source: dict[str, Any] = PX, **asked: Any) -> Any:
    changed = {**topic, "source": {**topic["source"], **asked}}
    return Declaration(changed, source).stream("http://g/", Path("/c"))


@rule("pipeline-12")
def test_a_conflated_topic() -> None:
    found = stream(filter="/qty > 0")
    assert STREAM.fullmatch(found.name)
    assert found.source == TopicSource("px", "records", None)
    assert found.sink == TopicSink("px.slow", declared=True)
    assert (str(found.key), found.interval_ms, found.gateway) == ("[/id]", 500, "http://g")
    assert (str(found.conflation.filter), found.conflation.oof) == ("/qty > 0", True)
    assert found.view is None
    assert found.begins_with_records
    assert found.dead_letters == Path("/c") / found.name / "dead"


def test_an_interval_is_rounded_up_to_milliseconds() -> None:
    """The gateway takes nanoseconds, Spark only milliseconds."""
    assert stream(interval="100500us").interval_ms == 101


@rule("pipeline-12")
def test_a_view() -> None:
    found = stream({**SLOW, "key": ["/venue"]}, filter="/qty > 0", **SHAPE)
    assert str(found.view.filter) == "/qty > 0"
    assert str(found.view.projection.grouping) == str(found.key) == "[/venue]"
    assert not found.conflation.holds


@rule("pipeline-12")
def test_messages_are_merged_as_the_source_says() -> None:
    summed = stream(source={**PX, "merge": {"/qty": "sum", "/px": "max@hi"}}).conflation
    assert (str(summed.reduce), summed.oof) == ("[/qty:sum,/px:max@hi]", True)
    merged = stream(source={**PX, "merge": MERGER}).conflation
    assert (merged.merger, merged.reduce) == (MERGER, None)
    without_key = {**PX, "key": [], "retain": False, "merge": {"/qty": "sum"}}
    assert str(stream(source=without_key).conflation.reduce) == "[/qty:sum]"
    assert stream(source={**PX, "merge": {"/qty": "sum"}}, **SHAPE).conflation.reduce is None


@rule("pipeline-13")
def test_a_source_without_records_is_read_from_the_start_of_its_journal() -> None:
    for source in ({**PX, "key": [], "retain": False}, {**PX, "retain": False}):
        found = stream(source=source)
        assert (found.source.start, found.conflation.oof) == ("epoch", False)
        assert not found.begins_with_records


def test_names_of_topics_become_distinct_names_of_streams() -> None:
    names = ["a.b", "a-b", "a_b", "x" * 255, "x" * 254, "0"]
    found = {Declaration({**SLOW, "topic": name}, PX).name for name in names}
    assert len(found) == len(names)
    assert all(STREAM.fullmatch(name) for name in found)


@rule("pipeline-13")
@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"interval": "1s"}, True),
        ({"filter": "/qty > 0"}, False),
        (SHAPE, False),
    ],
)
def test_only_another_interval_keeps_the_checkpoint(change: dict[str, Any], is_same: bool) -> None:
    assert (stream(**change).checkpoint == stream().checkpoint) is is_same


@rule("pipeline-13")
def test_another_merge_has_another_checkpoint_but_for_a_view() -> None:
    sources = [PX, {**PX, "merge": {"/qty": "sum"}}, {**PX, "merge": MERGER}]
    assert len({stream(source=source).checkpoint for source in sources}) == 3
    assert len({stream(source=source, **SHAPE).checkpoint for source in sources}) == 1


@rule("pipeline-13")
def test_another_epoch_has_another_checkpoint() -> None:
    streams = [stream(), stream({**SLOW, "epoch": "e9"}), stream(source={**PX, "epoch": "e9"})]
    assert len({each.checkpoint for each in streams}) == 3


@rule("pipeline-12")
def test_only_topics_with_engine_spark_and_an_existing_source_are_filled() -> None:
    by_gateway = {**SLOW, "topic": "g", "source": {**SOURCE, "engine": "gateway"}}
    orphan = {**SLOW, "topic": "o", "source": {**SOURCE, "topic": "none"}}
    assert [each.topic["topic"] for each in declarations([PX, SLOW, by_gateway, orphan])] == [
        "px.slow"
    ]
    assert streams_of([PX, SLOW], "http://g", Path("/c"), {"px.slow"}) == ([], [])


@rule("pipeline-12")
@pytest.mark.parametrize(
    "topic",
    [{**SLOW, "key": ["/other"]}, {**SLOW, "source": {**SOURCE, "filter": "/a >"}}],
)
def test_a_topic_that_cannot_be_filled_is_reported(topic: dict[str, Any]) -> None:
    with pytest.raises(DefinitionInvalid, match=r"topic px\.slow is not filled: "):
        stream(topic)
    streams, unfit = streams_of([PX, topic], "http://g", Path("/c"), ())
    assert (streams, len(unfit)) == ([], 1)


@rule("pipeline-12")
@pytest.mark.parametrize(
    ("merge", "reason"),
    [
        ("no.such.module:f", r"merger no\.such\.module:f cannot be imported: "),
        ({"/qty": "sum@id"}, "a reducer of its source writes to a field of the key"),
    ],
)
def test_a_merge_that_a_stream_cannot_use_is_an_error(merge: object, reason: str) -> None:
    source = {**PX, "key": [], "retain": False, "merge": merge}
    with pytest.raises(DefinitionInvalid, match=rf"^topic px\.slow is not filled: {reason}"):
        stream(source=source)
