"""A real cluster of a master and two workers: the same file, the same result, other processes."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.support.deadlines import HANGS_S
from tests.support.external.spark_cluster import ENVIRONMENT, spark_cluster
from tests.support.outside import require_java
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.spark import session
from tidegate.pipeline.spark.session import missing_package, pack_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS, KEYS, ROWS, LINES = 2_000, 13, 700, 900
TOML = """\
gateway = "{address}"
[pipeline.topic]
key = ["/k"]
interval = "1s"
rows_per_batch = {rows}
source = {{kind = "tidegate", topic = "raw"}}
sink = {{topic = "from-topic"}}
[pipeline.landed]
key = ["/k"]
interval = "1s"
files_per_batch = 1
source = {{kind = "files", path = "{folder}/in/*.ndjson"}}
sink = {{topic = "from-files"}}
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_a_definition_file_runs_on_a_cluster(journals: Journals, tmp_path: Path) -> None:
    require_java()
    records = [b'{"k":%d,"n":%d}' % (n * 7 % KEYS, n) for n in range(RECORDS)]
    journals.topic("raw", records)
    (tmp_path / "in").mkdir()
    for at in range(2):
        lines = [*records[at * LINES : (at + 1) * LINES], b"{broken"]
        (tmp_path / "in" / f"{at}.ndjson").write_bytes(b"\n".join(lines))
    file = tmp_path / "streams.toml"
    file.write_text(TOML.format(address=journals.address, folder=tmp_path, rows=ROWS))
    with spark_cluster(tmp_path) as cluster:
        words = ["run", str(file), "--available-now", "--master", cluster.master]
        with Child(
            [*ENVIRONMENT, sys.executable, "-m", "tidegate.pipeline", *words], tmp_path
        ) as running:
            assert running.wait(HANGS_S) == 0, running.output()
            assert "2 refused" in running.output()
        assert len(cluster.executors()) == 2
    # Where batches end: a topic's after so many rows, those of files after each file.
    batches = {
        "from-topic": (*range(0, RECORDS, ROWS), RECORDS),
        "from-files": (0, LINES, 2 * LINES),
    }
    for sink, ends in batches.items():
        newest = [newest_in_order(records[low:high]) for low, high in pairwise(ends)]
        assert [each.values for each in journals.topics[sink].publications] == newest
    letters = sorted((tmp_path / "checkpoints/landed/dead").iterdir())
    assert [json.loads(letter.read_text())["row"] for letter in letters] == [LINES + 1] * 2


def newest_in_order(records: list[bytes]) -> list[bytes]:
    """Return the last record of each key: keys take turns, so the last `KEYS` records have all."""
    return records[-KEYS:]


@pytest.mark.system
def test_our_code_can_be_imported_from_what_is_sent(tmp_path: Path) -> None:
    packed = pack_ours(tmp_path / "ours.zip")
    code = (
        f"import sys; sys.path.insert(0, {str(packed)!r}); "
        "from tidegate.pipeline.spark import session; "
        "print(session.__file__, session.missing_package())"
    )
    said = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert said == f"{packed}/tidegate/pipeline/spark/session.py \n"


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package() == ""
    monkeypatch.setattr(
        "tidegate.pipeline.spark.session.IMPORTED",
        ("tidegate.pipeline", "no_such_package.at_all"),
    )
    assert missing_package() == "no_such_package"


@pytest.mark.spark
def test_executors_that_lack_a_package_are_one_sentence(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "missing_package", lambda: "httpx2")
    with pytest.raises(SparkUnavailable) as raised:
        session.prepare_executors(spark)
    assert str(raised.value) == (
        "an executor of local[2] has no Python package httpx2: "
        "install the requirements of Tidegate on every node"
    )


@pytest.mark.spark
def test_executors_that_cannot_work_are_one_sentence(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        raise OSError("no room left")

    monkeypatch.setattr(session, "missing_package", broken)
    with pytest.raises(SparkUnavailable) as raised:
        session.prepare_executors(spark)
    assert str(raised.value) == "the executors of local[2] cannot work: OSError: no room left"
