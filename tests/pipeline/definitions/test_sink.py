from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import GOOD, check_mistake, written
from tidegate.pipeline.definitions.sink import ParquetSink, TopicSink
from tidegate.pipeline.definitions.stream import read_definitions

SINK = '{topic = "ticks.500ms"}'


def test_a_sink_is_a_topic_or_a_folder_of_parquet(tmp_path: Path) -> None:
    text = GOOD.replace(SINK, '{kind = "parquet", path = "out"}')
    first, second = (each.sink for each in read_definitions(written(tmp_path, text)))
    assert (first, second) == (ParquetSink(tmp_path / "out"), TopicSink("newest"))
    assert (first.place, second.place) == (f"parquet {tmp_path}/out", "topic newest")


def test_a_stream_from_no_topic_to_no_topic_names_none_twice(tmp_path: Path) -> None:
    text = GOOD.replace('{kind = "tidegate", topic = "ticks"}', '{kind = "files", path = "in"}')
    text = text.replace("rows_per_batch = 10\n", "")
    text = text.replace(SINK, '{kind = "parquet", path = "out"}')
    first, _ = read_definitions(written(tmp_path, text))
    assert first.sink.topic is first.source.topic is None


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('{topic = "tidegate.x"}', "sink.topic: expected a name outside the gateway's own"),
        ('{kind = "table"}', 'sink.kind: expected topic or parquet, found "table"'),
        ('{kind = "parquet"}', "sink.path: is missing, expected a folder"),
        ('{kind = "parquet", path = " "}', "sink.path: expected a folder"),
        ('{kind = "parquet", path = "s3://b/c"}', "sink.path: expected a folder that is mounted"),
        ('{kind = "parquet", path = "out", topic = "t"}', "sink.topic: unknown field"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, new: str, said: str) -> None:
    check_mistake(tmp_path, SINK, new, said)


def test_two_streams_share_no_folder(tmp_path: Path) -> None:
    into = '{kind = "parquet", path = "out"}'
    text = GOOD.replace(SINK, into).replace('{topic = "newest"}', into)
    with pytest.raises(Exception, match=r"have the sink parquet .*out: newest and from-files"):
        read_definitions(written(tmp_path, text))
