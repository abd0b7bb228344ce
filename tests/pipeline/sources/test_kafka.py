"""Kafka's keys name records, and its connector is downloaded or named as missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.pipeline.naive_newest import newest_by_key
from tests.pipeline.read_out import bodies, drained
from tests.support.deadlines import HANGS_S
from tests.support.external.kafka import (
    PARTITIONS,
    Broker,
    broker_jars,
    connector_folder,
    kafka_broker,
)
from tests.support.outside import require_java
from tests.support.rules import rule
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.definitions.source import KafkaSource, KeyFormat
from tidegate.pipeline.errors import SourceLost, SparkUnavailable, from_spark
from tidegate.pipeline.sources import kafka
from tidegate.pipeline.sources.kafka import connector_jars, fetch_jars, read_kafka, removed_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SOURCE = KafkaSource("127.0.0.1:1", "t", "epoch", None, (), None)


@rule("pipeline-7")
@pytest.mark.parametrize(
    ("text", "record"),
    [
        (b'"AAPL"', '["AAPL"]'),
        (b'"\\u0041APL"', '["AAPL"]'),
        (b"7.0", "[7]"),
        (b'["AAPL"]', '["AAPL"]'),
        (b'[ "AAPL" ]', '["AAPL"]'),
        (b'{"symbol":"AAPL","venue":"X"}', '["AAPL"]'),
        (b"AAPL", None),
        (b"", None),
        (b"null", None),
        (b"[]", None),
        (b'["AAPL","X"]', None),
        (b"[[1]]", None),
        (b"[", None),
        (b"{", None),
        (b'{"venue":"X"}', None),
        (b"\xff", None),
    ],
)
def test_a_key_in_json_names_a_record(text: bytes, record: str | None) -> None:
    assert removed(text, KeyFormat.JSON) == record


LIKE_JSON = (b"700", b"true", b"1E5", b'"QUO"', b"[1]", b"null")


@pytest.mark.parametrize("text", [b"AAPL", "Größe".encode(), b"[", *LIKE_JSON])
def test_a_key_that_is_a_text_names_the_record_with_that_text(text: bytes) -> None:
    assert removed(text, KeyFormat.TEXT) == json.dumps([text.decode()], ensure_ascii=False)


@pytest.mark.parametrize("text", [b"", b"\xff"])
def test_a_text_that_is_none_names_no_record(text: bytes) -> None:
    assert removed(text, KeyFormat.TEXT) is None
    assert removed(text, None) is None


@rule("pipeline-7")
def test_without_a_format_only_a_key_that_has_one_meaning_names_a_record() -> None:
    assert removed(b"AAPL", None) == '["AAPL"]'
    assert removed(b'{"symbol":700}', None) == "[700]"
    assert [removed(text, None) for text in LIKE_JSON] == [None] * len(LIKE_JSON)


def removed(text: bytes, key_format: KeyFormat | None) -> str | None:
    texts = pa.array([None, text], pa.binary())
    found: list[str | None] = removed_keys(texts, KeySpec.of(["/symbol"]), key_format).to_pylist()
    assert found[0] is None
    return found[1]


def test_a_key_of_several_fields_is_an_array_or_an_object() -> None:
    spec = KeySpec.of(["/symbol", "/venue"])
    texts = [b'["A",1]', b'{"venue":1,"symbol":"A"}', b"A"]
    assert removed_keys(pa.array(texts), spec).to_pylist() == ['["A",1]', '["A",1]', None]


def test_a_connector_that_cannot_be_had_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(modules: list[str], **_: object) -> None:
        raise SparkUnavailable(f"{modules[0]} cannot be had (no route to host)")

    monkeypatch.setattr(kafka, "fetch_jars", fetch)
    with pytest.raises(SparkUnavailable) as caught:
        connector_jars(SOURCE)
    said = str(caught.value)
    assert said.startswith("org.apache.spark:spark-sql-kafka-0-10_2.13:")
    assert said.endswith("name a version or a folder of jars as connector of the source")
    assert "\n" not in said


TOML = """\
gateway = "{gateway}"
[pipeline.ticks]
key = ["/k"]
interval = "1s"
source = {{kind = "kafka", brokers = "{brokers}", topic = "ticks", connector = "{connector}"}}
sink = {{topic = "newest"}}
"""


@pytest.fixture(scope="module")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The connector's jars, or None where there is nobody to have packages from."""
    require_java()
    return connector_folder(tmp_path_factory.mktemp("connector"))


@pytest.fixture(scope="module")
def broker(
    connector: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker | None]:
    jars = broker_jars() if connector else None
    if jars is None:
        yield None
        return
    with kafka_broker(jars, tmp_path_factory.mktemp("kafka")) as running:
        yield running


def ticks(low: int, high: int) -> list[tuple[str, str]]:
    return [(f"k{at % 7}", f'{{"k":"k{at % 7}","n":{at}}}') for at in range(low, high)]


def check_sentence() -> None:
    """What is left to be seen of Kafka where its packages cannot be had."""
    with pytest.raises(SparkUnavailable, match="name a version or a folder of jars as connector"):
        connector_jars(replace(SOURCE, connector="0.0.0"))


@rule("pipeline-6")
@pytest.mark.nightly
@pytest.mark.spark
def test_messages_are_in_order_of_their_partition_until_kafka_has_lost_some(
    spark: SparkSession, broker: Broker | None, connector: Path | None, tmp_path: Path
) -> None:
    if broker is None or connector is None:
        check_sentence()
        return
    for jar in connector.glob("*.jar"):
        spark.sql(f"ADD JAR '{jar}'")
    source = replace(SOURCE, brokers=broker.address, kafka_topic="raw", rows_per_batch=25)
    spec = KeySpec.of(["/k"])
    broker.send("raw", [*ticks(0, 60), ("gone", '{"k":"gone"}'), ("gone", None), ("[]", None)])
    rows = drained(read_kafka(spark, source, spec), tmp_path)
    assert {row.block for row in rows} == set(range(PARTITIONS))
    for partition in range(PARTITIONS):
        here = [row for row in rows if row.block == partition]
        assert [row.position for row in here] == list(range(len(here)))
    assert {row.file for row in rows} == {"raw"}
    records = [json.loads(body) for body in bodies(rows) if body is not None]
    for name in {f"k{at}" for at in range(7)}:
        numbers = [record["n"] for record in records if record and record["k"] == name]
        assert numbers == [at for at in range(60) if f"k{at % 7}" == name]
    assert [row.key for row in rows if row.body is None] == ['["gone"]']
    assert records.count(None) == 1
    broker.send("raw", ticks(60, 70))
    onwards = [
        json.loads(body or "")["n"]
        for body in bodies(drained(read_kafka(spark, source, spec), tmp_path))
    ]
    assert sorted(onwards) == list(range(60, 70))
    broker.remove("raw")
    broker.send("raw", ticks(0, 3))
    with pytest.raises(StreamingQueryException) as caught:
        drained(read_kafka(spark, source, spec), tmp_path)
    said = from_spark("s", str(caught.value))
    assert isinstance(said, SourceLost)
    assert str(said).startswith("s: Kafka no longer holds messages that were still to be read")


@pytest.mark.nightly
@pytest.mark.spark
def test_a_definition_file_brings_the_newest_of_each_key_from_kafka_to_a_topic(
    journals: Journals, broker: Broker | None, connector: Path | None, tmp_path: Path
) -> None:
    """Or, where packages cannot be had, the sentence that says so, and exit 78."""
    brokers = broker.address if broker else "127.0.0.1:1"
    named = str(connector) if broker and connector else "0.0.0"
    path = tmp_path / "ticks.toml"
    path.write_text(TOML.format(gateway=journals.address, brokers=brokers, connector=named))
    sent = ticks(0, 100)
    if broker:
        broker.send("ticks", [*sent, ("k0", "nonsense")])
    command = [sys.executable, "-m", "tidegate.pipeline", "run", str(path), "--available-now"]
    with Child(command, tmp_path) as child:
        code = child.wait(HANGS_S)
        said = child.output()
    if broker is None:
        assert code == 78
        assert "spark-sql-kafka-0-10_2.13:0.0.0 cannot be had" in said
        return
    assert code == 0, said
    assert "101 messages in, 7 out" in said
    assert "1 refused (see" in said
    values = journals.topics["newest"].values
    assert newest_by_key(values, "k") == newest_by_key([text.encode() for _, text in sent], "k")
    assert len(values) == 7


Ran = subprocess.CompletedProcess[str]
MODULES = ["org.example:one:1.0", "org.example:two:2.0-rc"]


def ivy_that(does: Callable[[dict[str, Path]], Ran]) -> Any:
    """In the place of subprocess.run: an Ivy that gets files by the names of its options."""

    def run(command: list[str], **_: object) -> Ran:
        return does({name: Path(text) for name, text in pairwise(command) if name[0] == "-"})

    return run


def test_jars_of_modules_are_those_that_ivy_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def does(options: dict[str, Path]) -> Ran:
        asked.append(options["-ivy"].read_text())
        options["-cachepath"].write_text("/cache/one.jar:/cache/two.jar\n")
        return Ran([], 0, "", "")

    monkeypatch.setattr(subprocess, "run", ivy_that(does))
    found = fetch_jars(MODULES, without=["org.other"], is_transitive=False)
    assert found == [Path("/cache/one.jar"), Path("/cache/two.jar")]
    assert '<dependency org="org.example" name="two" rev="2.0-rc"' in asked[0]
    assert asked[0].count('transitive="false"><exclude org="org.other"/></dependency>') == 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (":: org.example#one;1.0: not found", "org.example:one:1.0 not found"),
        ("UNRESOLVED\n\nno route to host\n", "no route to host"),
        ("", "no reason given"),
    ],
)
def test_what_cannot_be_had_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    monkeypatch.setattr(subprocess, "run", ivy_that(lambda _: Ran([], 1, said, "")))
    with pytest.raises(SparkUnavailable) as caught:
        fetch_jars(MODULES)
    assert str(caught.value) == f"org.example:one:1.0 cannot be had ({reason})"


def test_an_ivy_that_hangs_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_: dict[str, Path]) -> Ran:
        raise subprocess.TimeoutExpired("java", 1)

    monkeypatch.setattr(subprocess, "run", ivy_that(hangs))
    with pytest.raises(SparkUnavailable, match=r"cannot be had \(TimeoutExpired\)"):
        fetch_jars(MODULES)


@pytest.mark.nightly
def test_sparks_own_ivy_says_what_is_not_there() -> None:
    """Whether a repository answers or none can be reached."""
    require_java()
    with pytest.raises(SparkUnavailable, match=r"org\.example:no-such-package:1\.0 cannot be had"):
        fetch_jars(["org.example:no-such-package:1.0"])
