"""The examples for Spark users run, and docs/pipeline-spark.md shows their code."""

from __future__ import annotations

import json
import re
import runpy
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev import ROOT
from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.support.commands import serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples" / "spark"
PRICES = [{"symbol": name, "price": price} for name, price in (("A", 1.5), ("B", 7.0), ("A", 2.5))]


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def land(folder: Path) -> None:
    folder.mkdir()
    for number, price in enumerate(PRICES):
        (folder / f"{number}.json").write_text(json.dumps(price))


@pytest.mark.nightly
@pytest.mark.spark
def test_the_examples_do_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "landing")
    with serving() as address, Gateway(address) as gateway:
        example("write_stream")["main"](
            address, "prices", str(tmp_path / "landing"), str(tmp_path / "written")
        )
        gateway.stage("prices", [b'{"key":["B"],"reason":"deleted"}'], "s", "p", enveloped=True)
        assert not gateway.commit("prices", "p", 1, 1, ["s"]).duplicate
        example("read_stream")["main"](address, "prices", str(tmp_path))
        frame = example("analyze_journal")["moves"](spark, address, "prices")
        found = [tuple(row) for row in frame.collect()]
        asked = {"gateway": address, "topic": "prices"}
        frame = spark.read.format("tidegate").options(**asked).load()
        bars = [json.loads(row.value) for row in example("bars")["bars_of"](spark, frame).collect()]
    assert found == [("A", 2, 1.5, 2.5), ("B", 1, 7.0, 7.0)]
    of_symbols = {name: [it for it in bars if it["symbol"] == name] for name in "AB"}
    assert sum(map(len, of_symbols.values())) == len(bars), "a removal is no price"
    assert max(it["high"] for it in of_symbols["A"]) == 2.5
    assert [(it["open"], it["close"]) for it in of_symbols["B"]] == [(7.0, 7.0)]
    rows = spark.read.parquet(str(tmp_path / "prices")).orderBy("offset").collect()
    assert [row.offset for row in rows] == [1, 2, 3]
    assert sorted((row.symbol, row.price) for row in rows) == [("A", 1.5), ("A", 2.5), ("B", 7.0)]


@pytest.mark.nightly
@pytest.mark.spark
def test_recorded_files_are_conflated(spark: SparkSession, tmp_path: Path) -> None:
    lines = [{**price, "ts": at} for price, at in zip(PRICES, (0, 10, 20), strict=True)]
    (tmp_path / "day.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = example("conflate_files")["conflated"](spark, tmp_path).collect()
    found = {row.key: (json.loads(row.value)["price"], row.messages) for row in rows}
    assert found == {'["A"]': (2.5, 2), '["B"]': (7.0, 1)}


@rule("publish-10")
@pytest.mark.nightly
@pytest.mark.spark
def test_a_driver_that_is_killed_between_two_commits_loses_and_doubles_nothing(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway has published the second batch, and nobody has heard of it."""
    require_java()
    # Spark takes PATH's python3 otherwise, which need not have the package.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    land(tmp_path / "landing")
    words = [journals.address, "t", str(tmp_path / "landing"), str(tmp_path / "checkpoint")]
    command = [sys.executable, str(EXAMPLES / "write_stream.py"), *words]
    journals.hold_after = 2
    with Child(command, tmp_path) as first:
        first.await_until(journals.held.is_set, HANGS_S)
        first.kill()
    topic = journals.topics["t"]
    assert len(topic.publications) == 2
    journals.hold_after = None
    with Child(command, tmp_path) as second:
        assert second.wait(HANGS_S) == 0, second.output()
    assert sorted(json.loads(value)["price"] for value in topic.values) == [1.5, 2.5, 7.0]
    assert topic.repeats == 1
    assert [it.sequence for it in topic.publications] == [0, 1, 2]
    assert topic.publications[2].run > topic.publications[1].run == topic.publications[0].run


def test_the_page_shows_the_examples() -> None:
    page = (ROOT / "docs" / "pipeline-spark.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    examples = [textwrap.dedent(path.read_text("utf-8")) for path in sorted(EXAMPLES.iterdir())]
    shown = [textwrap.indent(block, "    ") for block in blocks]
    assert [sum(block in example for example in examples) for block in shown] == [1] * 5
