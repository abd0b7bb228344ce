"""A stream publishes each batch once, across restarts, new epochs and refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JError

from tests.pipeline.journals import Journals
from tests.pipeline.naive_newest import newest_by_key
from tests.pipeline.run_to_end import run_to_its_end
from tidegate.app.definitions.fields import TopicSource
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import CheckpointUnusable, StreamFailed, from_spark
from tidegate.pipeline.operations.status import Totals
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import (
    BATCHES_KEPT,
    BETWEEN_S_MAX,
    INTERVAL_S_MAX,
    Pacing,
    Stream,
    sink_definition,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FILES = 'source = {kind = "files", path = "in/*.ndjson"}\nfiles_per_batch = 2'
TOPIC = 'source = {kind = "tidegate", topic = "raw"}\nrows_per_batch = 40'


def ran(spark: SparkSession, journals: Journals, folder: Path, source: str) -> Stream:
    """The stream of a definition, run until all that was there is read."""
    return run_to_its_end(spark, written(journals, folder, source))


def written(journals: Journals, folder: Path, source: str) -> Path:
    path = folder / "s.toml"
    path.write_text(
        f'gateway = "{journals.address}"\n[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\n'
        f'sink = {{topic = "newest"}}\n{source}\n'
    )
    return path


def records(low: int, high: int, keys: int = 7) -> list[bytes]:
    return [b'{"k":%d,"n":%d}' % (at % keys, at) for at in range(low, high)]


@pytest.mark.spark
def test_files_count_by_time_then_name_and_lines_by_their_place(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    written: list[bytes] = []
    (tmp_path / "in").mkdir()
    # Modification time, name: the order of publication; creation and names alone say otherwise.
    places = [(3, "a"), (3, "b c"), (3, "c"), (5, "a0"), (5, "aa"), (9, "0")]
    for at, (second, name) in reversed(list(enumerate(places))):
        path = tmp_path / "in" / f"{name}.ndjson"
        lines = [*records(100 * at, 100 * at + 90), b"", b"nonsense", b'{"n":1}']
        path.write_bytes(b"\n".join(lines))
        os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))
        written = lines + written
    split = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "300")
    try:
        stream = ran(spark, journals, tmp_path, FILES)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", split or "")
    sink = journals.topics["newest"]
    assert newest_by_key(sink.values, "k") == newest_by_key(written, "k")
    assert stream.totals == Totals(3, 6 * 92, 3 * 7, 0, 12)
    batches = [[json.loads(value)["n"] for value in each.values] for each in sink.publications]
    assert batches == [list(range(at + 83, at + 90)) for at in (100, 300, 500)]
    assert sink.definition == {
        "key": ["/k"],
        "source": None,
        "description": "Filled by the pipeline s",
    }
    letters = (stream.definition.dead_letters / "batch-000000000.ndjson").read_bytes().splitlines()
    reasons = [json.loads(letter)["reason"].partition(":")[0] for letter in letters]
    assert reasons == ["message-invalid", "key-missing"] * 2


@pytest.mark.spark
def test_a_batch_that_was_published_but_not_noted_is_not_doubled(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    journals.topic("raw", records(0, 100))
    first = ran(spark, journals, tmp_path, TOPIC)
    assert first.totals == Totals(3, 100, 21, 0, 0)
    sink = journals.topics["newest"]
    assert sink.definition["source"] == {"topic": "raw", "interval": "1s", "engine": "spark"}
    published = list(sink.values)
    # What a kill between the gateway's answer and Spark's own note leaves behind.
    (first.definition.checkpoint / "spark" / "commits" / "2").unlink()
    journals.topic("raw", records(100, 130))
    again = ran(spark, journals, tmp_path, TOPIC)
    assert again.totals == Totals(2, 50, 7, 7, 0)
    assert sink.values[: len(published)] == published
    assert len(sink.values) == len(published) + 7
    assert newest_by_key(sink.values, "k") == newest_by_key(journals.topics["raw"].values, "k")


@pytest.mark.nightly
@pytest.mark.spark
def test_a_stream_with_a_new_checkpoint_is_another_producer(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    journals.topic("raw", records(0, 10))
    first = ran(spark, journals, tmp_path, TOPIC)
    first.definition.checkpoint.rename(tmp_path / "put-away")
    assert ran(spark, journals, tmp_path, TOPIC).totals == Totals(1, 10, 7, 0, 0)


def test_a_sink_that_was_made_again_is_not_filled_from_the_middle(
    journals: Journals, tmp_path: Path
) -> None:
    spark = cast("SparkSession", None)  # it is refused before a query starts
    [definition] = read_definitions(written(journals, tmp_path, TOPIC))
    with Checkpoint(definition) as checkpoint:
        checkpoint.require_sink(["e1"])
    journals.topic("newest", key=["/k"]).epoch = "e2"
    with (
        Checkpoint(definition) as checkpoint,
        pytest.raises(CheckpointUnusable, match="another epoch of topic newest"),
    ):
        Stream(definition).start(spark, checkpoint, available_now=True)


@pytest.mark.nightly
@pytest.mark.spark
def test_another_epoch_of_the_source_ends_the_stream_with_a_sentence(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("raw", records(0, 10))
    ran(spark, journals, tmp_path, TOPIC)
    topic.epoch = "e2"
    stream = ran(spark, journals, tmp_path, TOPIC)
    assert stream.query is not None
    said = str(from_spark("s", str(stream.query.exception())))
    assert said.startswith("s: the checkpoint was made with another epoch of topic raw (epoch e1")
    assert "\n" not in said


@pytest.mark.spark
@pytest.mark.nightly
def test_a_gateway_that_refuses_ends_the_stream_with_its_reason(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    journals.topic("raw", records(0, 10))
    journals.refusals = [413]
    stream = ran(spark, journals, tmp_path, TOPIC)
    assert stream.query is not None
    said = str(from_spark("s", str(stream.query.exception())))
    assert said == f"s: the gateway at {journals.address} refused: No [made-up, topic newest]"


GROUPED = 'grouping = ["/v"]\nprojection = ["SUM(/n) AS /n"]'
JOIN = """
[pipeline.s.join]
source = {kind = "tidegate", topic = "other"}
on = [["/k", "/k"]]
as = "/o"
"""


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ('key = ["/k"]', {}),
        ('key = ["/k"]\nfilter = "/n>0"', {"filter": "/n > 0"}),
        (GROUPED, {"grouping": ["/v"], "projection": ["SUM(/n) AS /n"]}),
        (
            f'{GROUPED}\nfilter = "/n > 0"',
            {"grouping": ["/v"], "projection": ["SUM(/n) AS /n"], "filter": "/n > 0"},
        ),
        # No source of a topic has words for these.
        (f'{GROUPED}\nrecord_key = ["/k"]\nfilter = "/n > 0"', {"filter": "/n > 0"}),
        (f'{GROUPED}\nfilter = "/n > 0"{JOIN}', {"filter": "/n > 0"}),
    ],
)
def test_a_sink_topic_says_how_it_is_made_of_its_source(
    tmp_path: Path, asked: str, more: dict[str, object]
) -> None:
    path = tmp_path / "s.toml"
    sink = 'interval = "1s"\nsink = {topic = "newest"}'
    source = 'source = {kind = "tidegate", topic = "raw"}'
    path.write_text(f"[pipeline.s]\n{sink}\n{source}\n{asked}\n")
    [definition] = read_definitions(path)
    asked_of_gateway = sink_definition(definition)["source"]
    assert asked_of_gateway == {"topic": "raw", "interval": "1s", "engine": "spark", **more}
    taken = TopicSource.of(asked_of_gateway).model_dump(mode="json", by_alias=True)
    assert {name: taken[name] for name in asked_of_gateway} == asked_of_gateway


def test_a_topic_of_another_gateway_is_no_source_of_a_topic_here(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        '[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\nsink = {topic = "raw"}\n'
        'source = {kind = "tidegate", topic = "raw", address = "http://10.0.0.9:8080"}\n'
    )
    [definition] = read_definitions(path)
    assert "source" not in sink_definition(definition)


def test_the_first_batch_waits_for_nothing() -> None:
    pacing = Pacing(1.0)
    assert pacing.not_before_s == 0
    pacing.begun(9.5)
    pacing.worked(0.5, 0.0)
    assert (pacing.not_before_s, pacing.slack_s(10.0)) == (0, 0)


def test_a_batch_stays_open_until_the_next_has_just_the_time_that_batches_take() -> None:
    pacing = Pacing(1.0)
    pacing.worked(0.4, 10.0)
    assert pacing.not_before_s == 11.0
    assert pacing.slack_s(10.0) == pytest.approx(0.6)
    pacing.worked(0.2, 11.0)
    assert pacing.slack_s(11.1) == pytest.approx(0.7), "one slow batch does not count"
    pacing.worked(0.3, 12.0)
    assert pacing.slack_s(12.0) == pytest.approx(0.7), "of two the second does"
    for at in range(13, 13 + BATCHES_KEPT - 1):
        pacing.worked(0.2, float(at))
    assert pacing.slack_s(float(at)) == pytest.approx(0.8)


def test_what_spark_does_between_two_batches_has_its_time_but_silence_has_none() -> None:
    pacing = Pacing(1.0)
    for at, between_s in ((10.0, 0.05), (11.0, 5.0), (20.0, 0.03)):
        pacing.worked(0.4, at)
        pacing.begun(at + pacing.slack_s(at) + between_s)
    pacing.worked(0.4, 21.0)
    assert pacing.slack_s(21.0) == pytest.approx(1.0 - 0.4 - 0.03)


def test_nothing_is_read_early_after_batches_with_silence_between_all_of_them() -> None:
    """What came right after such a read would wait for nearly two intervals."""
    pacing = Pacing(1.0)
    for number in range(BATCHES_KEPT + 1):
        pacing.begun(10.0 + 3 * number)
        pacing.worked(0.4, 10.4 + 3 * number)
        slack_s = pacing.slack_s(10.4 + 3 * number)
        assert 1.0 - 0.4 - BETWEEN_S_MAX <= slack_s <= 1.0 - 0.4


def test_what_passed_since_a_batch_that_sent_nothing_is_not_noted() -> None:
    pacing = Pacing(1.0)
    pacing.worked(0.4, 10.0)
    pacing.begun(10.0 + pacing.slack_s(10.0) + 0.25)
    pacing.worked(0.4, 0.0)
    pacing.begun(11.0)
    pacing.worked(0.4, 12.0)
    assert pacing.slack_s(12.0) == pytest.approx(1.0 - 0.4 - 0.25)


def test_a_batch_that_takes_the_interval_leaves_no_slack() -> None:
    pacing = Pacing(1.0)
    pacing.worked(1.3, 10.0)
    assert pacing.slack_s(10.0) == 0


def test_a_batch_that_sent_nothing_leaves_the_interval_as_it_was() -> None:
    pacing = Pacing(1.0)
    pacing.worked(0.4, 10.0)
    pacing.worked(0.1, 0.0)
    assert pacing.not_before_s == 11.0


@pytest.mark.parametrize("interval_s", [0.0, INTERVAL_S_MAX + 1])
def test_what_is_not_paced_or_paced_slowly_holds_nothing_open(interval_s: float) -> None:
    pacing = Pacing(interval_s)
    pacing.worked(0.4, 10.0)
    assert not pacing.holds
    assert pacing.slack_s(10.0) == 0


class Broken:
    """A sink, and what batches are made of: both say what py4j does."""

    def rows(self, messages: object, batch: object) -> object:
        raise Py4JError("py4j.protocol.Py4JJavaError: An error occurred\n" + "\tat x\n" * 100_000)


def test_what_java_says_of_a_batch_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\nsink = {topic = "newest"}\n'
        'source = {kind = "tidegate", topic = "raw"}\n'
    )
    [definition] = read_definitions(file)
    stream = Stream(definition)
    stream._batches = cast(Any, Broken())
    context = SimpleNamespace(getLocalProperty=lambda name: "0a")
    messages = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    with pytest.raises(StreamFailed) as raised:
        stream._write_batch(cast(Any, messages), 0)
    assert len(str(raised.value)) < 600
    assert raised.value.__suppress_context__
