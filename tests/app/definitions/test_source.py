"""Where a topic's messages come from: the values of the field `source`."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.app.definitions.fields import FilledBy, TopicSource
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.keys.filter import Filter
from tidegate.keys.projection import Projection
from tidegate.keys.text.duration import SECOND

PX = {"topic": "px", "interval": "1s"}
SOURCE = {**PX, "engine": "spark"}
VIEW = {**PX, "grouping": ["/g"], "projection": ["COUNT(/k) AS /n"]}


def source_of(value: object) -> TopicSource | None:
    return TopicDefinition.of({"source": value}).source


def written(source: TopicSource) -> dict[str, object]:
    return source.model_dump(mode="json", by_alias=True)


def test_a_source_is_filled_by_the_gateway_unless_it_says_spark() -> None:
    assert source_of(None) is None
    assert source_of(PX) == source_of({**PX, "engine": "gateway"})
    source = source_of(SOURCE)
    assert source is not None
    assert (source.topic, source.interval_ns, source.engine) == ("px", SECOND, FilledBy.SPARK)
    nothing = dict.fromkeys(("filter", "grouping", "projection"))
    assert source_of({**SOURCE, **nothing}) == source_of(SOURCE)


@pytest.mark.parametrize("interval", ["1ms", "1d"])
def test_of_spark_it_is_from_a_millisecond_to_a_day(interval: str) -> None:
    source = source_of({**PX, "interval": interval, "engine": "spark"})
    assert source is not None
    assert written(source)["interval"] == interval


def test_no_interval_is_guessed() -> None:
    """AMPS takes 5 s."""
    with pytest.raises(Refused, match="interval is missing"):
        source_of({"topic": "px"})


@pytest.mark.parametrize("interval", ["100ms", "1h", "3600s"])
def test_an_interval_is_from_100_ms_to_an_hour(interval: str) -> None:
    source = source_of({**PX, "interval": interval})
    assert source is not None
    assert source == source_of(written(source))


def test_a_view_is_written_as_lists_or_as_in_options() -> None:
    shape = Projection.parse("[/g,SUM(/v) AS /total,COUNT(/k) AS /n]", 0, "[/g,/h]", 0)
    lists = {"grouping": ["/g", "$.h"], "projection": ["/g", "sum(/v) AS /total, COUNT(/k) AS /n"]}
    texts = {"grouping": "[/g,/h]", "projection": shape.projection_text}
    for given in (lists, texts):
        source = source_of({**PX, **given})
        assert source is not None
        assert source.projection == shape
        assert written(source)["grouping"] == ["/g", "/h"]
        assert written(source)["projection"] == ["/g", "SUM(/v) AS /total", "COUNT(/k) AS /n"]


def test_a_filter_is_shown_in_its_canonical_spelling() -> None:
    source = source_of({**PX, "filter": "$.a==1 and /b is null"})
    assert source is not None
    assert source.filter == Filter.parse("/a = 1 AND /b IS NULL")
    assert written(source)["filter"] == "/a = 1 AND /b IS NULL"


@rule("pipeline-12")
def test_a_pipelines_source_has_filter_and_grouping() -> None:
    view, asked = source_of(VIEW), {**VIEW, "filter": "/a = 1", "engine": "spark"}
    assert view is not None
    source = source_of(asked)
    assert source is not None
    assert source.filter == Filter.parse("/a = 1")
    assert (source.engine, source.projection) == (FilledBy.SPARK, view.projection)


REFUSED: list[tuple[object, str, str]] = [
    ("px", "topic-invalid", "/source"),
    ({**SOURCE, "speed": 1}, "topic-invalid", "/source/speed"),
    ({**SOURCE, "filter": "/a ="}, "filter-invalid", "/source/filter"),
    ({**PX, "filter": 1}, "filter-invalid", "/source/filter"),
    ({**PX, "filter": "/a >"}, "filter-invalid", "/source/filter"),
    ({**PX, "grouping": ["/a"]}, "topic-invalid", "/source/projection"),
    ({**PX, "projection": ["/a"]}, "topic-invalid", "/source/grouping"),
    ({**VIEW, "grouping": ["a"]}, "topic-invalid", "/source/grouping"),
    ({**VIEW, "grouping": []}, "topic-invalid", "/source/grouping"),
    ({**VIEW, "grouping": [1]}, "topic-invalid", "/source/grouping"),
    ({**VIEW, "projection": ["SUM(/a)"]}, "topic-invalid", "/source/projection"),
    ({**VIEW, "projection": ["1 +"]}, "topic-invalid", "/source/projection"),
    ({**PX, "engine": None}, "topic-invalid", "/source/engine"),
    ({**SOURCE, "engine": "flink"}, "topic-invalid", "/source/engine"),
    ({**SOURCE, "topic": 1}, "topic-invalid", "/source/topic"),
    ({**SOURCE, "topic": "../x"}, "topic-invalid", "/source/topic"),
    ({**PX, "interval": "99ms"}, "topic-invalid", "/source/interval"),
    ({**PX, "interval": "2h"}, "topic-invalid", "/source/interval"),
    ({**PX, "interval": "0s", "engine": "spark"}, "topic-invalid", "/source/interval"),
    ({**PX, "interval": "2d", "engine": "spark"}, "topic-invalid", "/source/interval"),
    ({"topic": "px", "engine": "spark"}, "topic-invalid", "/source/interval"),
]


@pytest.mark.parametrize(("source", "code", "pointer"), REFUSED, ids=lambda it: str(it)[:140])
def test_what_is_no_source_is_refused_where_it_stands(
    source: object, code: str, pointer: str
) -> None:
    with pytest.raises(Refused) as refused:
        source_of(source)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)


def test_a_bad_filter_is_refused_with_its_position() -> None:
    with pytest.raises(Refused) as refused:
        source_of({**PX, "filter": "/a >"})
    assert refused.value.position == 4
