"""Definition files of streams are parsed strictly; a mistake is one line that names its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.pipeline.definitions.streams_file import GOOD, check_mistake, written
from tidegate.pipeline.definitions.source import FilesSource, TopicSource
from tidegate.pipeline.definitions.stream import ParquetSink, TopicSink, read_definitions
from tidegate.pipeline.errors import DefinitionInvalid, UsageInvalid


def test_a_file_of_two_streams_is_read(tmp_path: Path) -> None:
    first, second = read_definitions(written(tmp_path, GOOD))
    assert first.gateway == second.gateway == "http://127.0.0.1:9000"
    assert first.source == TopicSource(topic="ticks", start="epoch", rows_per_batch=10)
    assert str(first.key) == "[/a,/b/c]"
    assert (first.interval_ms, first.interval_text) == (500, "500ms")
    assert first.checkpoint == tmp_path / "checkpoints" / "newest"
    assert first.dead_letters == first.checkpoint / "dead"
    assert second.source == FilesSource(str(tmp_path / "in/*.ndjson"), "raw", 3)
    assert second.checkpoint == Path("/var/lib/from-files")
    assert second.dead_letters == tmp_path / "dead"


def test_a_file_without_a_gateway_uses_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.removeprefix('gateway = "http://127.0.0.1:9000/"\n')
    monkeypatch.delenv("TIDEGATE_GATEWAY", raising=False)
    assert read_definitions(written(tmp_path, text))[0].gateway == "http://127.0.0.1:8080"
    monkeypatch.setenv("TIDEGATE_GATEWAY", "http://desk:1")
    assert read_definitions(written(tmp_path, text))[0].gateway == "http://desk:1"
    assert read_definitions(written(tmp_path, GOOD))[0].gateway == "http://127.0.0.1:9000"


def test_a_given_gateway_overrides_the_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_GATEWAY", "http://desk:1")
    for found in read_definitions(written(tmp_path, GOOD), "http://given:2/"):
        assert found.gateway == "http://given:2"
    with pytest.raises(UsageInvalid, match="--gateway: expected an address such as http://"):
        read_definitions(written(tmp_path, GOOD), "given")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rows_per_batch = 10", "rows_per_batch = 0", "newest.rows_per_batch: expected a whole"),
        ("rows_per_batch = 10", "rows_per_batch = true", "newest.rows_per_batch: expected a whole"),
        ("rows_per_batch = 10", "files_per_batch = 1", "only with a source of kind files"),
        (
            "rows_per_batch = 10",
            "rows_a_batch = 10",
            "newest.rows_a_batch: unknown field; did you mean rows",
        ),
        ("rows_per_batch = 10", "grouping = []", "newest.grouping: expected field paths"),
        ("rows_per_batch = 10", "projection = []", "newest.grouping: is missing, expected field"),
        ("rows_per_batch = 10", 'record_key = ["/a"]', "record_key: only with grouping"),
        ("rows_per_batch = 10", 'checkpoint = "s3://b/c"', "not mounted is not available yet"),
        ('"500MS"', '"1 fortnight"', "newest.interval: expected a duration"),
        ('"500MS"', '"2d"', "newest.interval: expected a duration"),
        ('"500MS"', '"999us"', "newest.interval: expected a duration"),
        ('"500MS"', '"1\u017f"', "newest.interval: expected a duration"),
        ('"500MS"', "500", "newest.interval: expected a duration from 1ms to 1d"),
        ('interval = "500MS"', "", "newest.interval: is missing, expected a duration"),
        ("interval =", "intervall =", "did you mean interval instead of intervall?"),
        ('{kind = "tidegate", topic = "ticks"}', '"ticks"', "source: expected a table such as {k"),
        ('{topic = "ticks.500ms"}', '"out"', 'sink: expected a table such as {topic = "ticks.1s"}'),
        ("rows_per_batch = 10", 'conflation_key = ["/a"]', "newest.conflation_key: is called key"),
        ('"/var/lib/from-files"', '"checkpoints/newest"', "/newest: newest and from-files"),
        ('"dead"', '"checkpoints/newest/dead"', "have the dead_letters /"),
        ('"dead"', '"checkpoints/newest/held"', "of from-files is in the checkpoint of newest: /"),
        ('"dead"', '"checkpoints/newest"', "newest of from-files is in the checkpoint of newest"),
        ('"/var/lib/from-files"', '"checkpoints/newest/held"', "the checkpoint of newest: /"),
        ('"/var/lib/from-files"', '"checkpoints"', "the checkpoint of from-files: /"),
        (
            '{topic = "newest"}',
            '{kind = "parquet", path = "checkpoints/newest/spark"}',
            "newest/spark of from-files is in the checkpoint of newest: /",
        ),
        ('["/a", "$.b.c"]', "[]", "newest.key: expected field paths"),
        ('["/a", "$.b.c"]', '["/a", 1]', "newest.key: expected field paths"),
        ('["/a", "$.b.c"]', '["/a", "/a"]', "newest.key[1], position 0: a path is given twice"),
        ('["/a", "$.b.c"]', '["a"]', "newest.key[0], position 0: a field path starts"),
        ('{topic = "ticks.500ms"}', '{topic = "ticks"}', "a topic other than the source"),
        (
            '{topic = "ticks.500ms"}',
            '{topic = "newest"}',
            "have the sink topic newest: newest and from-files",
        ),
        ('"dead"', '"ftp://dead"', "from-files.dead_letters: ftp://dead"),
        ("[pipeline.newest]", '[pipeline."a b"]', "pipeline.a b: a name is"),
        ("http://127.0.0.1:9000/", "127.0.0.1:9000", "gateway: expected an address"),
        ("127.0.0.1:9000/", "127.0.0.1:99999/", "gateway: expected an address"),
        ("gateway =", "gate =", "gate: unknown field; did you mean gateway?"),
        ("gateway =", "gateway", "line 1, column 9: not TOML, expected"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    check_mistake(tmp_path, old, new, said)


def test_a_topic_of_another_gateway_may_have_the_name_of_the_sink(tmp_path: Path) -> None:
    source, sink = '{kind = "tidegate", topic = "ticks"}', '{topic = "ticks.500ms"}'
    for address, is_ours in (
        ("http://10.0.0.9:8080/", False),
        ("http://127.0.0.1:9000/", True),
        ("redis://10.0.0.9:6379/0", True),  # it may be the Redis of our gateways
    ):
        text = GOOD.replace(source, source.replace("}", f', address = "{address}"}}'))
        first, _ = read_definitions(written(tmp_path, text))
        assert first.own_topic(first.source) == ("ticks" if is_ours else None)
        if is_ours:
            with pytest.raises(DefinitionInvalid, match="a topic other than the source"):
                read_definitions(written(tmp_path, text.replace(sink, '{topic = "ticks"}')))
        else:
            assert read_definitions(written(tmp_path, text.replace(sink, '{topic = "ticks"}')))


def test_a_file_without_streams_or_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match="pipeline: is missing"):
        read_definitions(written(tmp_path, ""))
    with pytest.raises(DefinitionInvalid, match=r"at least one table \[pipeline.NAME\]"):
        read_definitions(written(tmp_path, "[pipeline]"))
    with pytest.raises(DefinitionInvalid, match=r"expected a table \[pipeline.NAME\], found 1"):
        read_definitions(written(tmp_path, "[pipeline]\nkey = 1"))
    with pytest.raises(DefinitionInvalid, match="pipeline instead of pipelines"):
        read_definitions(written(tmp_path, "[pipelines.a]"))
    with pytest.raises(DefinitionInvalid, match="No such file"):
        read_definitions(tmp_path / "none.toml")


def test_a_part_of_a_millisecond_is_rounded_up(tmp_path: Path) -> None:
    """As it is for topics with `engine: spark`."""
    first, _ = read_definitions(written(tmp_path, GOOD.replace('"500MS"', '"1500us"')))
    assert (first.interval_ms, first.interval_text) == (2, "1500us")


JOINED = """\
[pipeline.j]
key = ["/id", "/a/b"]
interval = "1s"
source = {kind = "tidegate", topic = "orders"}
sink = {topic = "joined"}
[pipeline.j.join]
source = {kind = "tidegate", topic = "quotes"}
on = [["/symbol", "/ticker"]]
as = "/quote"
"""


@pytest.mark.parametrize("place", ["/id", "/id/q", "/a", "/a/b", "$.a.b.c"])
def test_the_right_record_of_a_join_replaces_no_field_of_the_key(
    tmp_path: Path, place: str
) -> None:
    text = JOINED.replace('"/quote"', f'"{place}"')
    with pytest.raises(DefinitionInvalid) as caught:
        read_definitions(written(tmp_path, text))
    assert str(caught.value) == (
        "streams.toml: pipeline.j.join.as: the right record would replace a field of the key"
    )


@pytest.mark.parametrize("place", ["/quote", "/identity", "/a/c"])
def test_the_right_record_may_replace_any_other_field(tmp_path: Path, place: str) -> None:
    [joined] = read_definitions(written(tmp_path, JOINED.replace('"/quote"', f'"{place}"')))
    assert joined.view is not None
    grouped = JOINED.replace('key = ["/id", "/a/b"]', 'grouping = ["/id"]\nprojection = ["/id"]')
    assert read_definitions(written(tmp_path, grouped.replace('"/quote"', '"/id"')))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("pipeline*.toml")), ids=str)
def test_the_examples_are_valid(path: Path) -> None:
    assert read_definitions(path)


@pytest.mark.system
def test_reading_definitions_does_not_import_pyspark() -> None:
    program = "import sys, tidegate.pipeline.definitions.stream; print('pyspark' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert said.stdout.strip() == "False"


SINK = '{topic = "ticks.500ms"}'


def test_a_sink_is_a_topic_or_a_folder_of_parquet(tmp_path: Path) -> None:
    text = GOOD.replace(SINK, '{kind = "parquet", path = "out"}')
    first, second = (each.sink for each in read_definitions(written(tmp_path, text)))
    assert (first, second) == (ParquetSink(tmp_path / "out"), TopicSink("newest"))
    assert (first.label, second.label) == (f"parquet {tmp_path}/out", "topic newest")


def test_a_stream_from_files_to_files_has_no_topic(tmp_path: Path) -> None:
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
def test_a_mistake_in_a_sink_is_one_line_that_names_its_place(
    tmp_path: Path, new: str, said: str
) -> None:
    check_mistake(tmp_path, SINK, new, said)


def test_two_streams_cannot_share_a_folder(tmp_path: Path) -> None:
    into = '{kind = "parquet", path = "out"}'
    text = GOOD.replace(SINK, into).replace('{topic = "newest"}', into)
    with pytest.raises(
        DefinitionInvalid, match=r"have the sink parquet .*out: newest and from-files"
    ):
        read_definitions(written(tmp_path, text))
