from __future__ import annotations

import pyarrow as pa
import pytest

from keys.spec import KeySpec
from pipeline.definitions.feeds import KafkaSource
from pipeline.errors import SparkUnavailable
from pipeline.sources import kafka
from pipeline.sources.kafka import connector_jars, removed_keys

SOURCE = KafkaSource("127.0.0.1:1", "t", "epoch", None, (), None)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (b"AAPL", '["AAPL"]'),
        (b'"AAPL"', '["AAPL"]'),
        (b'"\\u0041APL"', '["AAPL"]'),
        (b"7.0", "[7]"),
        (b'["AAPL"]', '["AAPL"]'),
        (b'[ "AAPL" ]', '["AAPL"]'),
        (b'{"symbol":"AAPL","venue":"X"}', '["AAPL"]'),
        ("Größe".encode(), '["Größe"]'),
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
def test_a_tombstone_removes_the_record_that_its_key_names(text: bytes, record: str | None) -> None:
    """Rule 531."""
    found = removed_keys(pa.array([None, text], pa.binary()), KeySpec.of(["/symbol"]))
    assert found.to_pylist() == [None, record]


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
