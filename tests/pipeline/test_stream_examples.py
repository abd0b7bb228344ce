"""The streams of `examples/` run unchanged, except for the address of a Redis."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from redis import Redis

from dev import ROOT
from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.pipeline.run_to_end import run_to_its_end
from tests.support.commands import command, parsed, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.definitions.stream import read_definitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.glob("pipeline-*.toml"))
REDIS = "redis://127.0.0.1:6379/0"
ELSEWHERE = {
    "pipeline-kafka.toml": "sources/test_kafka.py",
    "pipeline-view.toml": "streams/test_views.py",
}
"""Examples whose source or page is another test's."""


def trade(name: str, price: float, ts: int) -> bytes:
    tick = {"tickerId": name, "exchange": "X", "type": "trade", "price": price, "ts": ts}
    return json.dumps(tick, separators=(",", ":")).encode()


TICKS = [trade("A", 2, 1_000), trade("B", 9, 1_100), trade("A", 1, 1_200), trade("A", 3, 9_000)]


READINGS = (EXAMPLES / "landing" / "readings.ndjson").read_text("utf-8").splitlines()
NEWEST = [line.encode() for line in (READINGS[1], READINGS[2], READINGS[4])]


def ticks(journals: Journals, folder: Path) -> None:
    journals.topic("ticks", TICKS)


def landed(journals: Journals, folder: Path) -> None:
    shutil.copytree(EXAMPLES / "landing", folder / "examples/landing")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("TIDEGATE_GATEWAY", raising=False)
    return monkeypatch


def ran(spark: SparkSession, journals: Journals, folder: Path, name: str, redis: str = "") -> Path:
    """Run a copy of an example until all that is there is read."""
    os.environ["TIDEGATE_GATEWAY"] = journals.address  # `environment` takes it back
    (folder / "examples").mkdir(exist_ok=True)
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    path = folder / "examples" / name
    path.write_text(text.replace(REDIS, redis), encoding="utf-8")
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
        ("files", landed, "readings", NEWEST),
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
        [READINGS[3]] if given is landed else []
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


def sunk(address: str, topic: str) -> list[bytes]:
    """The records of a sink, once there is one."""
    with Gateway(address) as gateway:
        return list(gateway.sow(topic)) if gateway.find_topic(topic) else []


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("is_flag", [True, False], ids=["--gateway", "TIDEGATE_GATEWAY"])
@pytest.mark.parametrize(
    ("name", "data", "sink"),
    [
        ("topic", ["ticks"], "ticks.1s"),
        ("event-time", ["ticks"], "trades.range"),
        ("view", ["ticks", "orders"], "orders.exposure"),
        ("files", [], "readings"),
    ],
    ids=["topic", "event-time", "view", "files"],
)
def test_an_example_runs_as_written_beside_its_data(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    data: list[str],
    sink: str,
    is_flag: bool,
) -> None:
    """As its comment says, in a copy of the folder, which gets the checkpoint."""
    require_java()
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples")
    made = [sys.executable, str(folder / "pipeline_data.py"), *data]
    run = command("pipeline", "run", str(folder / f"pipeline-{name}.toml"))
    with serving("--data", ":memory:") as address, ExitStack() as running:
        environment.setenv("TIDEGATE_GATEWAY", address)
        if data:
            feed = running.enter_context(Child(made, tmp_path))
            with Gateway(address) as gateway:
                feed.await_until(lambda: all(map(gateway.find_topic, data)), HANGS_S)
        if is_flag:
            environment.setenv("TIDEGATE_GATEWAY", "http://127.0.0.1:1")
            run += ["--gateway", address]
        stream = running.enter_context(Child(run, tmp_path))
        stream.await_until(lambda: bool(sunk(address, sink)), HANGS_S)
        assert stream.stop(signal.SIGTERM) == 0, stream.output()


def commands_of(path: Path) -> Iterator[list[str]]:
    """The commands in the comment of an example."""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("#   "):
            yield shlex.split(line.removeprefix("#   "))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_commands_of_an_example_can_be_given(path: Path) -> None:
    found = list(commands_of(path))
    assert [".venv/bin/tidegate", "pipeline", "run", f"examples/{path.name}"] in found
    for program, *words in found:
        if program == ".venv/bin/tidegate":
            assert parsed(*words).command.callback
        elif program == ".venv/bin/python":
            assert (ROOT / words[0]).is_file()
    [definition] = read_definitions(path)
    if definition.sink.topic is not None:
        assert [".venv/bin/tidegate", "subscribe", definition.sink.topic] in found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_obeys_the_option_and_the_variable(
    environment: pytest.MonkeyPatch, path: Path
) -> None:
    environment.setenv("TIDEGATE_GATEWAY", "http://variable:1")
    assert read_definitions(path)[0].gateway == "http://variable:1"
    assert read_definitions(path, "http://option:2")[0].gateway == "http://option:2"


def test_no_example_is_left_out() -> None:
    run = {f"pipeline-{name}.toml" for name in ("topic", "event-time", "files", "redis", "rate")}
    assert {path.name for path in FILES} == run | set(ELSEWHERE)
    assert all((ROOT / "tests/pipeline" / test).is_file() for test in ELSEWHERE.values())
