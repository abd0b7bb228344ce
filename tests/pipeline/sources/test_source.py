from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.definitions.streams_file import GOOD, written
from tests.pipeline.journals import Journals
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.definitions.external import (
    FileFormat,
    FilesSource,
    KafkaSource,
    RateSource,
    RedisSource,
)
from tidegate.pipeline.definitions.source import Source, TopicSource
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.sources.source import are_checked, jars_of, open_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = KafkaSource("127.0.0.1:1", "t", "epoch", None, (), None)


@pytest.fixture
def definition(tmp_path: Path) -> StreamDefinition:
    return read_definitions(written(tmp_path, GOOD))[0]


@pytest.mark.spark
@pytest.mark.parametrize(
    "source",
    [
        TopicSource("t", "epoch", None),
        FilesSource("/nowhere/*.ndjson"),
        FilesSource("/nowhere/*.csv", format=FileFormat.CSV, schema=(("a", "long"),)),
        RedisSource("redis://127.0.0.1:1/0", "t", "epoch", None, 5),
        RateSource(10, keys=2, seed=1),
    ],
    ids=lambda source: source.place.partition(" ")[0],
)
def test_every_source_gives_published_rows(
    spark: SparkSession, journals: Journals, definition: StreamDefinition, source: Source
) -> None:
    journals.topic("t", [b"{}"])
    given = replace(definition, gateway=journals.address, source=source)
    frame = open_source(spark, given)
    assert frame.isStreaming
    assert frame.schema.names == arrow_schema(PUBLISHED).names
    assert are_checked(given) == isinstance(source, TopicSource)


def test_only_kafka_needs_jars_and_its_one_connector_is_had_once(
    definition: StreamDefinition, tmp_path: Path
) -> None:
    assert jars_of([definition]) == []
    (tmp_path / "a.jar").touch()
    (tmp_path / "readme").touch()
    kafka = replace(definition, source=replace(KAFKA, connector=tmp_path))
    assert jars_of([definition, kafka, kafka]) == [tmp_path / "a.jar"]
    with pytest.raises(DefinitionInvalid, match="have one connector"):
        jars_of([kafka, replace(definition, source=KAFKA)])
