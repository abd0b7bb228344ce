"""Spark fills topics with `engine: spark` with the same records as the gateway fills its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.pipeline.archive.served import Served, gateway
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.retry import PAUSE_FIRST_S
from tidegate.pipeline import connection
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import GatewayUnreachable
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.supervisor import RunOptions
from tidegate.pipeline.streams import run as module
from tidegate.pipeline.streams.run import Topics, run_streams
from tidegate.pipeline.streams.runner import StreamRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_EVERY_S = 0.2  # each poll asks the gateway in this process twice

PLAIN = {"topic": "px", "interval": "200ms", "filter": "/qty > 0"}
VIEW = {
    "topic": "px",
    "interval": "200ms",
    "filter": "/qty > 0",
    "grouping": ["/venue"],
    "projection": ["/venue", "SUM(/qty) AS /total", "COUNT(/id) AS /n"],
}


def order(name: str, venue: str, qty: int) -> dict[str, Any]:
    return {"id": name, "venue": venue, "qty": qty}


def declare(served: Served, name: str, source: dict[str, Any]) -> None:
    """Define a topic that Spark fills, and its twin that the gateway fills."""
    served.define(name, source={**source, "engine": "spark"})
    served.define(f"{name}.twin", source=source)


def await_until(reached: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + HANGS_S
    while not reached():
        assert time.monotonic() < give_up_at, "the condition was not reached in time"
        time.sleep(POLL_EVERY_S)


def await_twins(served: Served, *names: str) -> None:
    """Wait until topics have the same records as their twins."""
    give_up_at = time.monotonic() + HANGS_S
    for name in names:
        while (found := served.records(name)) != (twin := served.records(f"{name}.twin")):
            assert time.monotonic() < give_up_at, (found, twin)
            time.sleep(POLL_EVERY_S)


def stopped(said: list[str]) -> set[str]:
    """Return the names of the stopped streams, without their digests."""
    lines = (line.removesuffix(": stopped") for line in said if line.endswith(": stopped"))
    return {line.rpartition("-")[0] for line in lines}


@contextmanager
def running(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, address: str, folder: Path
) -> Iterator[list[str]]:
    """Run the command in a thread, on the tests' Spark session; yield the lines that it prints."""
    monkeypatch.setattr(module, "spark_session", lambda master, jars: nullcontext(spark))
    said: list[str] = []
    stop, ended = Stop(), list[BaseException | None]()

    def work() -> None:
        try:
            run_streams(None, Topics(address, folder), RunOptions(), stop, said.append)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield said
    except AssertionError as failure:
        failure.add_note("\n".join(said))
        raise
    finally:
        stop.ask()
        thread.join()
    assert ended == [None], said


RAW = 'kind = "tidegate", topic = "raw"'
NEWEST = 'topic = "newest"'


def write_definition(folder: Path, source: str = RAW, sink: str = NEWEST) -> Path:
    """Write a definition of one stream, whose gateway does not run."""
    path = folder / "s.toml"
    path.write_text(
        'gateway = "http://127.0.0.1:1"\n[pipeline.s]\nkey = ["/a"]\ninterval = "1s"\n'
        f"source = {{{source}}}\nsink = {{{sink}}}\n"
    )
    return path


DOWN_GATEWAY = "the gateway at http://127.0.0.1:1"
DOWN_REDIS = "the Redis at 127.0.0.1:1"
INTO_FILES = 'kind = "parquet", path = "out"'


@pytest.mark.parametrize(
    ("source", "sink", "server"),
    [
        (None, None, DOWN_GATEWAY),  # the topics of a gateway
        (RAW, NEWEST, DOWN_GATEWAY),
        ('kind = "redis", address = "redis://127.0.0.1:1", stream = "s"', INTO_FILES, DOWN_REDIS),
        (RAW + ', address = "redis://user:hidden@127.0.0.1:1/0"', INTO_FILES, DOWN_REDIS),
    ],
)
def test_a_first_start_says_at_once_which_server_is_down(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str | None,
    sink: str | None,
    server: str,
) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 1.2 * PAUSE_FIRST_S)
    monkeypatch.setattr(module, "spark_session", lambda master, jars: nullcontext())
    said: list[str] = []
    path = None if source is None or sink is None else write_definition(tmp_path, source, sink)
    topics = Topics("http://127.0.0.1:1", tmp_path) if path is None else None
    with pytest.raises(GatewayUnreachable):
        run_streams(path, topics, RunOptions(), Stop(), said.append)
    told = [line for line in said if f"cannot reach {server}" in line]
    assert [line.rpartition("; ")[2] for line in told] == ["trying again for 0 s"]
    assert "hidden" not in "".join(said)


@rule("pipeline-9")
def test_a_restart_does_not_wait_for_a_gateway_that_is_down(tmp_path: Path) -> None:
    path = write_definition(tmp_path)
    said: list[str] = []
    runner = StreamRunner(RunOptions(), said.append)
    running = runner.add(*read_definitions(path))
    runner.spark = running.stream.query = cast(Any, "there was a start")
    running.supervised.poll()
    assert len(said) == 1
    assert "; it is started again in " in said[0]


@rule("pipeline-12", "pipeline-13")
@pytest.mark.spark
def test_a_declared_topic_is_filled_from_the_records_on(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with gateway() as served:
        served.define("px", key=["/id"], history={"messages": 3})
        served.publish("px", *(order(f"o{at}", "EU" if at % 2 else "US", at) for at in range(9)))
        served.remove("px", '["o3"]')
        declare(served, "plain", PLAIN)
        with running(monkeypatch, spark, served.address, tmp_path):
            await_twins(served, "plain")
            assert len(served.records("plain")) == 7
            served.publish("px", order("o1", "US", 0), order("n", "AP", 1))
            await_until(lambda: '["n"]' in served.records("plain"))
            await_twins(served, "plain")


@rule("pipeline-12", "pipeline-13", "pipeline-14")
@pytest.mark.nightly
@pytest.mark.spark
def test_declared_topics_end_up_with_the_records_of_the_gateways_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with gateway() as served:
        served.define("px", key=["/id"], history={"messages": 3})
        served.publish("px", *(order(f"o{at}", "EU" if at % 2 else "US", at) for at in range(9)))
        served.remove("px", '["o3"]')
        declare(served, "plain", PLAIN)
        declare(served, "view.by-venue", VIEW)
        served.define("raw", key=["/id"], merge={"/n": "sum"})
        served.publish("raw", {"id": "s", "n": 0})
        declare(served, "sums", {"topic": "raw", "interval": "200ms"})
        with running(monkeypatch, spark, served.address, tmp_path) as said:
            await_twins(served, "plain", "view.by-venue")
            assert len(served.records("plain")) == 7
            await_twins(served, "sums")
            served.publish("raw", *[{"id": "s", "n": 1}] * 5)
            await_until(lambda: served.records("sums.twin") == {'["s"]': {"id": "s", "n": 5}})
            await_twins(served, "sums")
            served.publish("px", order("o1", "US", 0), order("o5", "US", 50), order("n", "AP", 1))
            served.remove("px", '["o2"]')
            await_until(lambda: '["o2"]' not in served.records("plain.twin"))
            await_twins(served, "plain", "view.by-venue")
            # Another filter: records that differ are published, others removed.
            for name in ("plain", "plain.twin"):
                served.change(name, source={"filter": "/qty > 4"})
            await_until(lambda: len(served.records("plain.twin")) == 4)
            await_twins(served, "plain")
            assert list(served.values("plain")).count(order("o5", "US", 50)) == 1
            # The second run needs one stream only: each query takes seconds to start.
            for name in ("view.by-venue", "sums"):
                served.drop(name)
            await_until(lambda: {"view-by-venue", "sums"} <= stopped(said))
            served.publish("px", order("o8", "EU", 80))
            await_until(lambda: order("o8", "EU", 80) in served.records("plain").values())
        published = len(served.values("plain"))
        # A second run continues and publishes nothing twice.
        with running(monkeypatch, spark, served.address, tmp_path):
            served.publish("px", order("o8", "EU", 81))
            await_until(lambda: order("o8", "EU", 81) in served.records("plain").values())
        assert len(served.values("plain")) == published + 1
