from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import GOOD, check_mistake, written
from tidegate.pipeline.definitions.external import KafkaSource, RateSource, RedisSource
from tidegate.pipeline.definitions.source import Source
from tidegate.pipeline.definitions.stream import read_definitions

TOPIC = '{kind = "tidegate", topic = "ticks"}'
REDIS = 'kind = "redis", address = "redis://me:secret@10.0.0.1:6379/2", stream = "ticks"'
KAFKA = 'kind = "kafka", brokers = "a:9092,b:9092", topic = "ticks"'
RATE = 'kind = "rate", rows_per_second = 10'


def source_of(folder: Path, table: str) -> Source:
    first, _ = read_definitions(written(folder, GOOD.replace(TOPIC, f"{{{table}}}")))
    return first.source


def test_a_redis_stream_is_remembered_without_who_asks(tmp_path: Path) -> None:
    source = source_of(tmp_path, f'{REDIS}, field = "json", from = "17-0"')
    address = "redis://me:secret@10.0.0.1:6379/2"
    assert source == RedisSource(address, "ticks", "17-0", "json", rows_per_batch=10)
    assert source.place == "redis 10.0.0.1:6379/2 stream ticks"
    assert source.topic is None


def test_a_kafka_topic_comes_with_a_connector_and_options(tmp_path: Path) -> None:
    plain = KafkaSource("a:9092,b:9092", "ticks", "epoch", None, (), rows_per_batch=10)
    assert source_of(tmp_path, KAFKA) == plain
    assert plain.place == "kafka topic ticks"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").touch()
    more = '"kafka.security.protocol" = "SSL"'
    source = source_of(tmp_path, f'{KAFKA}, from = "now", connector = "jars", options = {{{more}}}')
    assert isinstance(source, KafkaSource)
    assert (source.start, source.connector) == ("now", tmp_path / "jars")
    assert source.options == (("kafka.security.protocol", "SSL"),)
    versioned = source_of(tmp_path, f'{KAFKA}, connector = "4.2.0"')
    assert isinstance(versioned, KafkaSource)
    assert versioned.connector == "4.2.0"


def test_made_rows_are_remembered_with_what_makes_them(tmp_path: Path) -> None:
    table = GOOD.replace(TOPIC, f"{{{RATE}, keys = 5, seed = 3}}").replace(
        "rows_per_batch = 10", ""
    )
    first, _ = read_definitions(written(tmp_path, table))
    assert first.source == RateSource(10, keys=5, seed=3)
    assert first.source.place == "rate 10/s of 5 keys, seed 3"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (REDIS.replace("redis:", "http:"), "source.address: expected an address such as redis://"),
        (f"{REDIS}, from = 'epoch-1'", "source.from: expected epoch, now or the id of an entry"),
        (REDIS.replace('"ticks"', '""'), "source.stream: expected the key of a Redis stream"),
        (f'{REDIS}, topic = "t"', "source.topic: unknown field"),
        (KAFKA.replace("a:9092", "a"), "source.brokers: expected brokers such as"),
        (KAFKA.replace('"ticks"', '"a b"'), "source.topic: expected the name of a Kafka topic"),
        (f'{KAFKA}, from = "1-2"', "source.from: expected epoch or now"),
        (f'{KAFKA}, connector = "no"', "source.connector: expected a version such as 4.1.0, or a"),
        (f'{KAFKA}, options = {{"group.id" = "g"}}', "source.options: expected texts, such as"),
        (f'{KAFKA}, options = {{"kafka.a" = 1}}', "source.options: expected texts, such as"),
        (RATE.replace("10", "0"), "source.rows_per_second: expected a whole number from 1"),
        (RATE.replace("10", "1_000_001"), "source.rows_per_second: expected a whole number from"),
        ('kind = "rate"', "source.rows_per_second: is missing, expected how many"),
        (f"{RATE}, keys = 0", "source.keys: expected a whole number from 1 to"),
        (RATE, "newest.rows_per_batch: only with a source of kind tidegate, redis or kafka"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, table: str, said: str) -> None:
    check_mistake(tmp_path, TOPIC, f"{{{table}}}", said)


def test_no_error_repeats_a_password(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"source\.options: expected texts") as caught:
        source_of(tmp_path, f'{KAFKA}, options = "kafka.sasl.jaas.config=secret"')
    assert "secret" not in str(caught.value)
    with pytest.raises(Exception, match=r"source\.address: expected") as caught:
        source_of(tmp_path, REDIS.replace("redis:", "reddis:"))
    assert "secret" not in str(caught.value)
