"""The table `source` is read strictly, and each source has a label without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import GOOD, check_mistake, written
from tidegate.pipeline.definitions.source import (
    FileFormat,
    FilesSource,
    KafkaSource,
    RateSource,
    RedisSource,
    Source,
)
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import DefinitionInvalid


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('topic = "ticks"}', 'topic = "_x"}', "newest.source.topic: expected a topic name"),
        ('topic = "ticks"}', 'topic = "t", from = "1"}', "now (the latest) or a bookmark"),
        ('topic = "ticks"}', 'topic = "t", from = "a b-7"}', "now (the latest) or a bookmark"),
        ('topic = "ticks"}', 'topic = "t", from = "e-07"}', "now (the latest) or a bookmark"),
        ('topic = "ticks"}', 'topic = "t", from = "\u00e9-1"}', "now (the latest) or a bookmark"),
        (
            'topic = "ticks"}',
            'topic = "t", path = "x"}',
            "newest.source.path: unknown field; known are",
        ),
        ('topic = "ticks"}', 'topic = "t", address = "x:secret"}', "source.address: expected an"),
        ('kind = "tidegate"', 'kind = "tape"', "source.kind: expected tidegate, redis, kafka, "),
        ('topic = "ticks"}', 'topik = "t"}', "did you mean topic instead of topik?"),
        ('topic = "ticks"}', 'topic = "t", rows_per_batch = 1}', "belongs beside source, not in"),
        ('topic = "ticks"}', 'topic = "t", prefix = "{p}"}', "source.prefix: expected the redis_p"),
        ('kind = "tidegate", ', "", "source.kind: is missing, expected tidegate, redis, kafka, "),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    check_mistake(tmp_path, old, new, said)


TOPIC = '{kind = "tidegate", topic = "ticks"}'
REDIS = 'kind = "redis", address = "redis://me:secret@10.0.0.1:6379/2", stream = "ticks"'
KAFKA = 'kind = "kafka", brokers = "a:9092,b:9092", topic = "ticks"'
RATE = 'kind = "rate", rows_per_second = 10'


def source_of(folder: Path, table: str) -> Source:
    first, _ = read_definitions(written(folder, GOOD.replace(TOPIC, f"{{{table}}}")))
    return first.source


def test_the_place_of_a_redis_stream_has_no_user(tmp_path: Path) -> None:
    source = source_of(tmp_path, f'{REDIS}, field = "json", from = "17-0"')
    address = "redis://me:secret@10.0.0.1:6379/2"
    assert source == RedisSource(address, "ticks", "17-0", "json", rows_per_batch=10)
    assert source.label == "redis 10.0.0.1:6379/2 stream ticks"
    assert source.topic is None


def test_a_kafka_topic_comes_with_a_connector_and_options(tmp_path: Path) -> None:
    plain = KafkaSource("a:9092,b:9092", "ticks", "epoch", None, (), rows_per_batch=10)
    assert source_of(tmp_path, KAFKA) == plain
    assert plain.label == "kafka topic ticks"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").touch()
    more = '"security.protocol" = "SSL"'
    source = source_of(tmp_path, f'{KAFKA}, from = "now", connector = "jars", options = {{{more}}}')
    assert isinstance(source, KafkaSource)
    assert (source.start, source.connector) == ("now", tmp_path / "jars")
    assert source.options == (("security.protocol", "SSL"),)
    versioned = source_of(tmp_path, f'{KAFKA}, connector = "4.2.0"')
    assert isinstance(versioned, KafkaSource)
    assert versioned.connector == "4.2.0"


def test_made_rows_are_remembered_with_what_makes_them(tmp_path: Path) -> None:
    table = GOOD.replace(TOPIC, f"{{{RATE}, keys = 5, seed = 3}}").replace(
        "rows_per_batch = 10", ""
    )
    first, _ = read_definitions(written(tmp_path, table))
    assert first.source == RateSource(10, keys=5, seed=3)
    assert first.source.label == "rate 10/s of 5 keys, seed 3"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (REDIS.replace("redis:", "http:"), "source.address: expected an address such as redis://"),
        (f"{REDIS}, from = 'epoch-1'", "now (the latest) or the id of an entry"),
        (REDIS.replace('"ticks"', '""'), "source.stream: expected the key of a Redis stream"),
        (f'{REDIS}, topic = "t"', "source.topic: unknown field"),
        (KAFKA.replace("a:9092", "a"), "source.brokers: expected brokers such as"),
        (KAFKA.replace('"ticks"', '"a b"'), "source.topic: expected the name of a Kafka topic"),
        (f'{KAFKA}, from = "1-2"', "source.from: expected epoch (the earliest) or now"),
        (f'{KAFKA}, connector = "no"', "source.connector: expected a version such as 4.1.0, or a"),
        (
            f'{KAFKA}, options = {{"kafka.group.id" = "g"}}',
            "source.options: expected names of Kafka's clients, group.id instead of kafka.group.id",
        ),
        (f'{KAFKA}, options = {{"a" = 1}}', "source.options: expected a table of texts"),
        (RATE.replace("10", "0"), "source.rows_per_second: expected a whole number from 1"),
        (RATE.replace("10", "1_000_001"), "source.rows_per_second: expected a whole number from"),
        ('kind = "rate"', "source.rows_per_second: is missing, expected how many"),
        (f"{RATE}, keys = 0", "source.keys: expected a whole number from 1 to"),
        (RATE, "newest.rows_per_batch: only with a source of kind tidegate, redis or kafka"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place_external(
    tmp_path: Path, table: str, said: str
) -> None:
    check_mistake(tmp_path, TOPIC, f"{{{table}}}", said)


def test_files_have_no_time_of_publication(tmp_path: Path) -> None:
    new = '{kind = "files", path = "in/*.ndjson"}\ntime = "published"'
    check_mistake(tmp_path, TOPIC, new, "newest.time: files have no time of publication")


def test_no_error_repeats_a_password(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"source\.options: expected a table of texts") as caught:
        source_of(tmp_path, f'{KAFKA}, options = "sasl.jaas.config=secret"')
    assert "secret" not in str(caught.value)
    with pytest.raises(Exception, match=r"source\.address: expected") as caught:
        source_of(tmp_path, REDIS.replace("redis:", "reddis:"))
    assert "secret" not in str(caught.value)


PATH = 'path = "in/*.ndjson"'


@pytest.mark.parametrize(
    ("pattern", "content"),
    [
        ("in/*.ndjson", FileFormat.NDJSON),
        ("in", FileFormat.NDJSON),
        ("in/*.json.gz", FileFormat.NDJSON),
        ("in/*.csv", FileFormat.CSV),
        ("in/*.csv.gz", FileFormat.CSV),
        ("in/*.csv.zst", FileFormat.CSV),
        ("in/*.parquet", FileFormat.PARQUET),
    ],
)
def test_a_path_says_what_files_are_made_of(pattern: str, content: FileFormat) -> None:
    assert FileFormat.of_name(pattern) is content


def test_csv_has_columns_of_types(tmp_path: Path) -> None:
    table = 'path = "in/x", format = "csv", delimiter = "\\t", header = false'
    table += ', schema = {symbol = "string", price = "decimal(10,2)"}'
    _, second = read_definitions(written(tmp_path, GOOD.replace(PATH, table)))
    assert second.source == FilesSource(
        pattern=str(tmp_path / "in/x"),
        topic="raw",
        files_per_batch=3,
        format=FileFormat.CSV,
        schema=(("symbol", "string"), ("price", "decimal(10,2)")),
        delimiter="\t",
        has_header=False,
    )
    assert second.source.label == f"csv files {tmp_path}/in/x"
    assert FilesSource("in").label == "files in"


def test_an_address_may_have_options_of_arrow(tmp_path: Path) -> None:
    for given, options in [('{region = "x", scheme = "http"}', 2), ("{}", 0)]:
        table = f'path = "s3a://bucket/*.csv", arrow = {given}'
        _, second = read_definitions(written(tmp_path, GOOD.replace(PATH, table)))
        assert isinstance(second.source, FilesSource)
        assert len(second.source.arrow or ()) == options
        assert second.source.arrow is not None
        assert second.source.label == "csv files s3a://bucket/*.csv"


@pytest.mark.parametrize("name", ["secret_key", "access_key", "sas_token", "kerb_Password"])
def test_options_of_arrow_have_no_secrets(tmp_path: Path, name: str) -> None:
    new = f'{PATH}, arrow = {{{name} = "hidden"}}'
    said = "from-files.source.arrow: expected texts without secrets, such as"
    check_mistake(tmp_path, PATH, new, said)
    with pytest.raises(DefinitionInvalid) as caught:
        read_definitions(written(tmp_path, GOOD.replace(PATH, new)))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('path = " "', "from-files.source.path: expected a path or pattern"),
        (f'{PATH}, format = "xml"', "source.format: expected ndjson, csv or parquet"),
        (f'{PATH}, delimiter = ";"', "source.delimiter: only with files of csv"),
        (f'{PATH}, schema = {{a = "long"}}', "source.schema: only with files of csv or parquet"),
        ('path = "a.csv", delimiter = ", "', "source.delimiter: expected one character"),
        ('path = "a.csv", header = "no"', "source.header: expected true or false"),
        ('path = "a.csv", header = false', "source.schema: is missing, expected the columns of"),
        ('path = "a.csv", schema = "a LONG"', "source.schema: expected columns, such as"),
        (
            'path = "a.csv", schema = {a = "text"}',
            "source.schema.a: expected one of string, boolean",
        ),
        ('path = "a.parquet", header = true', "source.header: only with files of csv"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place_files(
    tmp_path: Path, new: str, said: str
) -> None:
    check_mistake(tmp_path, PATH, new, said)
