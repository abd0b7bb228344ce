"""What the examples say of ticks is true of the recorded ones."""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from tests.support.outside import require_ticks
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import read_fields
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions

pytestmark = pytest.mark.nightly  # the recorded ticks are not part of the project

ROWS = 2_000
PAGE = (ROOT / "docs" / "pipeline.md").read_text("utf-8")


@pytest.fixture(scope="module")
def ticks() -> list[bytes]:
    with gzip.open(require_ticks()) as lines:
        return [line for line, _ in zip(lines, range(ROWS), strict=False)]


def asked(definition: StreamDefinition) -> Iterator[tuple[str, Filter | None, list[FieldPath]]]:
    """The topics that it reads, which of their messages, and fields that these should have."""
    wanted, view = definition.conflation, definition.view
    if isinstance(definition.source, TopicSource) and view is None:
        fields = [*definition.key.paths]
        fields += [wanted.time.field.path] if wanted.time and wanted.time.field else []
        fields += [column.path for column in wanted.reduce.columns] if wanted.reduce else []
        yield definition.source.topic, wanted.filter, fields
    if view is not None and view.join is not None and isinstance(view.join.source, TopicSource):
        fields = [*view.join.record_key.paths] if view.join.record_key else []
        fields += [right for _, right in view.join.on]
        yield view.join.source.topic, view.join.filter, [*fields, FieldPath.parse("/price")]


def check(ticks: list[bytes], wanted: Filter | None, fields: list[FieldPath]) -> None:
    matches = wanted.matcher() if wanted else None
    shown = [line for line in ticks if matches is None or matches(line, "")]
    assert len(shown) > ROWS / 10
    assert all(None not in read_fields(tuple(fields))(line) for line in shown)


@pytest.mark.parametrize("name", ["topic", "event-time", "view"])
def test_a_pipeline_finds_what_it_looks_for(name: str, ticks: list[bytes]) -> None:
    [definition] = read_definitions(ROOT / "examples" / f"pipeline-{name}.toml")
    read = [(wanted, fields) for topic, wanted, fields in asked(definition) if topic == "ticks"]
    assert len(read) == 1
    check(ticks, *read[0])


def test_so_does_the_one_on_the_page(tmp_path: Path, ticks: list[bytes]) -> None:
    path = tmp_path / "page.toml"
    path.write_text("[pipeline.highs]" + PAGE.split("[pipeline.highs]")[1].split("```")[0])
    [definition] = read_definitions(path)
    wanted = definition.conflation
    assert wanted.reduce
    assert wanted.time
    assert wanted.time.field
    fields = [column.path for column in wanted.reduce.columns]
    check(ticks, wanted.filter, [*definition.key.paths, wanted.time.field.path, *fields])


def test_topics_of_the_market_have_their_fields(ticks: list[bytes]) -> None:
    topics: dict[str, Any] = tomllib.loads(
        (ROOT / "examples" / "topics" / "markets.toml").read_text("utf-8")
    )["topics"]
    paths = [FieldPath.parse(text) for text in topics["market.ticks"]["key"]]
    check(ticks, None, paths)
    volume = topics["market.volume"]["source"]
    traded = Filter.parse(volume["filter"])
    check(ticks, traded, [FieldPath.parse(text) for text in ("/size", "/price")])
    assert {json.loads(line)["type"] for line in ticks} == {"quote", "trade"}
