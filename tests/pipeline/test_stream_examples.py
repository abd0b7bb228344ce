"""The streams of `examples/` run as they stand there, but for the addresses of this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from redis import Redis

from dev import ROOT
from tests.pipeline.journals import Journals
from tests.pipeline.run_to_end import run_to_its_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"
GATEWAY, REDIS = "http://127.0.0.1:8080", "redis://127.0.0.1:6379/0"
ELSEWHERE = {
    "pipeline-kafka.toml": "sources/test_kafka.py",
    "pipeline-view.toml": "streams/test_views.py",
}
"""Examples whose source or page is another test's."""


def trade(name: str, price: float, ts: int) -> bytes:
    tick = {"tickerId": name, "exchange": "X", "type": "trade", "price": price, "ts": ts}
    return json.dumps(tick, separators=(",", ":")).encode()


TICKS = [trade("A", 2, 1_000), trade("B", 9, 1_100), trade("A", 1, 1_200), trade("A", 3, 9_000)]


def ticks(journals: Journals, folder: Path) -> None:
    journals.topic("ticks", TICKS)


def landed(journals: Journals, folder: Path) -> None:
    (folder / "examples/landing").mkdir()
    lines = ['{"device":1,"sensor":"t","c":20}', "{broken", '{"device":1,"sensor":"t","c":21}']
    (folder / "examples/landing/1.ndjson").write_text("\n".join(lines))


def ran(spark: SparkSession, journals: Journals, folder: Path, name: str, redis: str = "") -> Path:
    """Run a copy of an example until all that is there is read."""
    (folder / "examples").mkdir(exist_ok=True)
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    text = text.replace(GATEWAY, journals.address).replace(REDIS, redis)
    path = folder / "examples" / name
    path.write_text(text, encoding="utf-8")
    run_to_its_end(spark, path).end()
    return path


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "given", "sink", "values"),
    [
        ("topic", ticks, "ticks.1s", [TICKS[1], TICKS[3]]),
        (
            "event-time",
            ticks,
            "trades.range",
            [
                TICKS[1][:-1] + b',"high":9,"low":9}',
                TICKS[2][:-1] + b',"high":2,"low":1}',
                TICKS[3][:-1] + b',"high":3,"low":3}',
            ],
        ),
        ("files", landed, "readings", [b'{"device":1,"sensor":"t","c":21}']),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_example_fills_its_topic(
    spark: SparkSession,
    journals: Journals,
    tmp_path: Path,
    name: str,
    given: Callable[[Journals, Path], None],
    sink: str,
    values: list[bytes],
) -> None:
    (tmp_path / "examples").mkdir()
    given(journals, tmp_path)
    ran(spark, journals, tmp_path, f"pipeline-{name}.toml")
    found = [json.loads(value) for value in journals.topics[sink].values]
    assert sorted(found, key=str) == sorted(map(json.loads, values), key=str)
    letters = list((tmp_path / "tidegate-data/pipeline/landed-dead").glob("*.ndjson"))
    assert [json.loads(each.read_text())["line"] for each in letters] == (
        ["{broken"] if given is landed else []
    )


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.redis
def test_the_example_of_redis_fills_its_topic(
    spark: SparkSession, journals: Journals, tmp_path: Path, redis_url: str
) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.delete("orders")
        for n in range(4):
            redis.xadd("orders", {"json": json.dumps({"orderId": n % 2, "n": n})})
    ran(spark, journals, tmp_path, "pipeline-redis.toml", redis_url)
    found = [json.loads(value) for value in journals.topics["orders"].values]
    assert found == [{"orderId": 0, "n": 2}, {"orderId": 1, "n": 3}]


@pytest.mark.nightly
@pytest.mark.spark
def test_the_example_without_a_gateway_fills_a_folder(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    path = ran(spark, journals, tmp_path, "pipeline-rate.toml")  # from now on rows are due
    time.sleep(1.5)  # Spark's own source counts by the clock, in whole seconds
    run_to_its_end(spark, path)
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "tidegate-data/made").to_pylist()
    symbols = {json.loads(row["value"])["symbol"] for row in rows}
    assert len(rows) == len(symbols) == 50


def test_no_example_is_left_out() -> None:
    run = {f"pipeline-{name}.toml" for name in ("topic", "event-time", "files", "redis", "rate")}
    assert {path.name for path in EXAMPLES.glob("pipeline-*.toml")} == run | set(ELSEWHERE)
    assert all((ROOT / "tests/pipeline" / test).is_file() for test in ELSEWHERE.values())
