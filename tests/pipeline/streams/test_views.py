"""Views in running streams: against a recomputation over what was published, batch by batch."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from dev import ROOT
from tests.pipeline.journals import Journals, Removed
from tests.pipeline.run_to_end import run_to_its_end
from tests.support.rules import rule
from tidegate.pipeline.errors import CheckpointUnusable, from_spark
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.streams.stream import Stream
from tidegate.pipeline.streams.views import HeldTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPED = """
record_key = ["/id"]
filter = "/qty >= 0"
grouping = ["/region"]
projection = ["SUM(/qty) AS /qty", "COUNT(/id) AS /orders"]
source = {kind = "files", path = "orders/*.ndjson"}
"""
JOINED = """
key = ["/id"]
source = {kind = "files", path = "orders/*.ndjson"}
[pipeline.v.join]
source = {kind = "files", path = "quotes/*.ndjson"}
record_key = ["/ticker"]
on = [["/symbol", "/ticker"]]
as = "/quote"
"""
Shown = dict[str, Any]


def ran(spark: SparkSession, journals: Journals, folder: Path, view: str) -> Stream:
    """The stream of a definition, run until all that was there is read."""
    path = folder / "v.toml"
    path.write_text(
        f'gateway = "{journals.address}"\n[pipeline.v]\ninterval = "1s"\n'
        f'sink = {{topic = "view"}}\n{view}'
    )
    return run_to_its_end(spark, path)


def landed(folder: Path, name: str, second: int, *messages: dict[str, Any]) -> None:
    (folder / name).mkdir(exist_ok=True)
    path = folder / name / f"{second}.ndjson"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))


def shown(journals: Journals, field: str) -> Shown:
    """What the sink topic has, after all that was published to it."""
    found: Shown = {}
    for value in journals.topics["view"].values:
        if isinstance(value, Removed):
            del found[json.loads(value)[0]]
        else:
            row = json.loads(value)
            found[row[field]] = row
    return found


def order(name: str, region: str, qty: int, symbol: str = "A") -> dict[str, Any]:
    return {"id": name, "region": region, "qty": qty, "symbol": symbol}


@rule("view-9", "view-10")
@pytest.mark.spark
@pytest.mark.nightly
def test_groups_continue_from_a_checkpoint(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    landed(tmp_path, "orders", 1, order("a", "EU", 1), order("b", "US", 2), order("a", "EU", 3))
    first = ran(spark, journals, tmp_path, GROUPED)
    assert shown(journals, "region") == {
        "EU": {"region": "EU", "qty": 3, "orders": 1},
        "US": {"region": "US", "qty": 2, "orders": 1},
    }
    landed(
        tmp_path, "orders", 2, order("b", "EU", 4), order("c", "APAC", -1), {"id": "d", "qty": 1}
    )
    ran(spark, journals, tmp_path, GROUPED)
    sink = journals.topics["view"]
    assert shown(journals, "region") == {"EU": {"region": "EU", "qty": 7, "orders": 2}}
    assert sink.definition["key"] == ["/region"]
    assert sink.definition["source"] is None
    letters = (first.definition.dead_letters / "batch-000000001.ndjson").read_text().splitlines()
    assert [json.loads(letter)["reason"].partition(":")[0] for letter in letters] == ["key-invalid"]
    # A kill before Spark's own note: the batch comes again, and says the same.
    (first.definition.checkpoint / "spark" / "commits" / "1").unlink()
    published = list(sink.values)
    assert ran(spark, journals, tmp_path, GROUPED).totals.repeated == 2
    assert sink.values == published


@rule("view-12", "view-13")
@pytest.mark.spark
@pytest.mark.nightly
def test_a_join_follows_both_sides(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    landed(tmp_path, "orders", 1, order("a", "EU", 1), order("b", "US", 2, "B"))
    landed(tmp_path, "quotes", 1, {"ticker": "A", "bid": 5}, {"bid": 6})
    stream = ran(spark, journals, tmp_path, JOINED)
    assert shown(journals, "id") == {
        "a": {**order("a", "EU", 1), "quote": {"ticker": "A", "bid": 5}},
        "b": order("b", "US", 2, "B"),
    }
    assert stream.totals.refused == 1
    landed(tmp_path, "quotes", 2, {"ticker": "B", "bid": 7})
    ran(spark, journals, tmp_path, JOINED)
    assert shown(journals, "id")["b"]["quote"]["bid"] == 7


@pytest.mark.nightly
@pytest.mark.spark
def test_a_join_whose_tables_are_lost_is_an_error(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    landed(tmp_path, "orders", 1, order("a", "EU", 1))
    landed(tmp_path, "quotes", 1, {"ticker": "A", "bid": 5})
    stream = ran(spark, journals, tmp_path, JOINED)
    shutil.rmtree(stream.definition.checkpoint / "held" / "pairs" / "000000000")
    landed(tmp_path, "quotes", 2, {"ticker": "B", "bid": 8})
    ended = ran(spark, journals, tmp_path, JOINED).query
    assert ended is not None
    assert "is missing or damaged" in str(from_spark("v", str(ended.exception())))


@pytest.mark.nightly
@pytest.mark.spark
def test_the_example_shows_what_its_page_says(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text("utf-8").split("## Views")[1]
    example = page.split("```toml\n")[1].split("```")[0]
    assert example in (ROOT / "examples" / "pipeline-view.toml").read_text("utf-8")
    orders, ticks, rows = (block.split("```")[0] for block in page.split("```json\n")[1:])
    journals.topic("orders", orders.encode().splitlines())
    journals.topic("ticks", ticks.encode().splitlines())
    path = tmp_path / "v.toml"
    path.write_text(f'gateway = "{journals.address}"\n' + example.replace("../", ""))
    run_to_its_end(spark, path)
    sink = journals.topics["orders.exposure"]
    assert sorted(sink.values) == rows.encode().splitlines()
    assert sink.definition["source"]["topic"] == "orders"


@pytest.mark.parametrize(
    ("lost", "said"),
    [(lambda path: path.unlink(), "missing"), (lambda path: path.write_bytes(b""), "damaged")],
)
def test_what_was_kept_is_read_by_the_next_batch_or_missed(
    tmp_path: Path, lost: Callable[[Path], object], said: str
) -> None:
    first, second = (HeldTables(tmp_path, Batch(number, 1, "q"), 2) for number in range(2))
    assert first.read("groups", 1) is None
    first.write("groups", 1, pa.table({"at": [7]}))
    assert second.read("groups", 1).to_pylist() == [{"at": 7}]  # type: ignore[union-attr]  # it is there
    lost(tmp_path / "groups" / "000000000" / "0001.arrow")
    with pytest.raises(CheckpointUnusable, match=said):
        second.read("groups", 1)
