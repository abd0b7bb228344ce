"""Parsing and validation of the Spark options."""

from __future__ import annotations

import pytest

from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.format.options import ReadOptions, WriteOptions, rows_per_task


def test_topic_is_the_only_required_option() -> None:
    read = ReadOptions.of({"topic": "t"})
    assert (read.gateway, read.start, read.rows_per_batch, read.shards, read.is_bus) == (
        "http://127.0.0.1:8080", "epoch", None, None, False,
    )  # fmt: skip
    assert WriteOptions.of({"topic": "t"}) == WriteOptions("http://127.0.0.1:8080", "t")


def test_every_option_is_applied() -> None:
    given = {
        "Gateway": "redis://h/0", "topic": "t", "prefix": "p", "from": "e-7",
        "rows_per_batch": "10", "shards": "4",
    }  # fmt: skip
    assert ReadOptions.of(given) == ReadOptions("redis://h/0", "t", "p", "e-7", 10, 4)
    assert ReadOptions.of(given).is_bus
    written = {"topic": "t", "key": "/a, /b", "run": "7", "checkpointLocation": "/c"}
    assert WriteOptions.of(written) == WriteOptions("http://127.0.0.1:8080", "t", ("/a", "/b"), 7)


def test_a_key_is_spelled_as_its_topic_shows_it() -> None:
    """Otherwise a restart would find another spelling of the key, and refuse the topic."""
    assert WriteOptions.of({"topic": "t", "key": "$.a, /b/c"}).fields == ("/a", "/b/c")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs"),
        ({"topic": "t", "rows_per_batch": "0"}, "whole number above 0"),
        ({"topic": "t", "rows_per_batch": "1e3"}, "whole number above 0"),
        ({"topic": "t", "shards": "1001"}, "at most 1000"),
        ({"topic": "t", "rows": "1"}, "has no option rows"),
        ({"topic": "t", "key": "/k"}, "has no option key here; it takes from, gateway"),
        ({"topic": "t", "gatway": "http://h"}, "no option gatway here; did you mean gateway?"),
        ({"topic": "t", "prefix": "{p}"}, "no braces"),
        ({"topic": "t", "gateway": "127.0.0.1:8080"}, "address such as http://127.0.0.1:8080 or r"),
    ],
)
def test_invalid_read_options_are_rejected(given: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionInvalid, match=message):
        ReadOptions.of(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs"),
        ({"topic": "t", "from": "now"}, "has no option from here"),
        ({"topic": "t", "run": "-1"}, "whole number above 0"),
        ({"topic": "t", "key": "/a,b"}, "key is fields such as /symbol,/venue: a field path"),
        ({"topic": "t", "gateway": "redis://h/0"}, "writes through a gateway"),
        ({"topic": "t", "gateway": "ftp://h"}, "gateway is an address such as http://"),
    ],
)
def test_invalid_write_options_are_rejected(given: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionInvalid, match=message):
        WriteOptions.of(given)


@pytest.mark.parametrize(
    ("rows", "cores", "size"),
    [
        (10, 2, 20_000),
        (200_000, None, 20_000),
        (200_000, 2, 100_000),
        (200_001, 2, 100_001),
        (200_000, 16, 20_000),
        (9_000_000, 2, 250_000),
    ],
)
def test_rows_per_task_uses_every_core(rows: int, cores: int | None, size: int) -> None:
    assert rows_per_task(rows, cores) == size
