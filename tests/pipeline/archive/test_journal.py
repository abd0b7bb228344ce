"""A topic goes into its archive: once, whole, and on behind what is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from pipeline.archive import journal as journal_module
from pipeline.archive.folder import TopicFolder
from pipeline.archive.journal import Wish, journal, keep
from pipeline.errors import ArchiveUnusable, SourceLost, UsageInvalid
from pipeline.operations.stop import Stop
from tests.pipeline.archive.archives import archive, files, positions, row, unheard
from tests.pipeline.archive.served import Served, gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def wish(folder: Path, address: str = "http://127.0.0.1:1", **given: Any) -> Wish:
    asked: dict[str, Any] = {
        "topic": "ticks",
        "archive": folder,
        "gateway": address,
        "checkpoint": None,
        "interval": "1s",
        "available_now": True,
        "compact": False,
        "master": "local[2]",
    }
    return Wish(**{**asked, **given})


@pytest.fixture
def served() -> Iterator[Served]:
    with gateway() as found:
        found.define("ticks", key=["/k"])
        yield found


@pytest.mark.spark
@pytest.mark.slow
def test_a_topic_is_archived_once_whatever_happens_in_between(
    spark: SparkSession, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 561 and 563: killed before and after a file is seen, without its checkpoint, anew."""
    told: list[str] = []
    asked = wish(tmp_path / "kept", served.address)
    folder = TopicFolder(tmp_path / "kept", "ticks")
    publish = TopicFolder.publish

    def killed_before(*_: object) -> None:
        raise RuntimeError("killed")

    def killed_after(self: TopicFolder, *given: object) -> None:
        publish(self, *given)  # type: ignore[arg-type]  # as they come
        raise RuntimeError("killed")

    served.publish("ticks", {"k": "a", "n": 1}, {"k": "b", "n": 2})
    for killed in (killed_before, killed_after):
        with monkeypatch.context() as patched:
            patched.setattr(TopicFolder, "publish", killed)
            with pytest.raises(Exception, match="killed"):
                keep(asked, Stop(), told.append, spark)
        served.remove("ticks", '["a"]')
        served.publish("ticks", {"k": "a", "n": 3})
    totals = keep(asked, Stop(), told.append, spark)
    assert totals.messages == 4
    assert positions(folder) == [1, 2, 3, 4, 5, 6]
    assert told[-1] == "ticks: 2 batches, 4 messages archived"
    other = wish(tmp_path / "kept", served.address, checkpoint=tmp_path / "another")
    served.publish("ticks", {"k": "c", "n": 4})
    assert keep(other, Stop(), told.append, spark).messages == 1
    served.drop("ticks")
    served.define("ticks", key=["/k"])
    served.publish("ticks", {"k": "z"})
    keep(asked, Stop(), told.append, spark)
    assert positions(folder) == [1, 2, 3, 4, 5, 6, 7, 1]
    plainly_read(spark, tmp_path / "kept")


def plainly_read(spark: SparkSession, archive_folder: Path) -> None:
    """What readers see that know nothing of us: Spark, pyarrow, the planner."""
    from pipeline.columns.history import read_history

    frame = spark.read.parquet(str(archive_folder))
    assert {"topic", "date"} <= set(frame.columns)
    assert frame.where("reason = 'deleted' AND value IS NULL").count() == 2
    assert frame.where("topic = 'ticks'").count() == 8
    table = ds.dataset(archive_folder, format="parquet", partitioning="hive").to_table()
    assert table.num_rows == 8
    lines = read_history(spark, archive_folder / "topic=ticks").collect()
    assert read_history(spark, archive_folder).count() == len(lines)
    assert [line.line for line in lines if line.line is None] == []
    assert len(lines) == 6
    assert all(line.time_ms > 0 for line in lines)


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_gone_is_told_and_never_skipped(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.define("short", history={"messages": 2})
    asked = wish(tmp_path, served.address, topic="short")
    served.publish("short", {"n": 1}, {"n": 2}, {"n": 3})
    keep(asked, Stop(), unheard, spark)
    assert positions(TopicFolder(tmp_path, "short")) == [2, 3]
    served.publish("short", *({"n": n} for n in range(4, 9)))
    with pytest.raises(SourceLost, match="gone from the journal"):
        keep(asked, Stop(), unheard, spark)
    folder = TopicFolder(tmp_path, "short")
    folder.file(folder.parts()[-1]).unlink()
    with pytest.raises((ArchiveUnusable, SourceLost)):
        keep(asked, Stop(), unheard, spark)


def test_small_files_are_put_together_without_spark_or_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, [row(1)], [row(2)], [row(3)])
    assert journal(wish(tmp_path, compact=True)) == 0
    assert capsys.readouterr().out == "ticks: 2 files fewer\n"
    assert len(files(folder)) == 1


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        ({"topic": "a/b"}, 2, "is no name of a topic"),
        ({"interval": "0s"}, 2, "--interval: expected 1ms to 1d"),
        ({"compact": True}, 2, "holds no archive of topic ticks"),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, Any],
    code: int,
    sentence: str,
) -> None:
    assert journal(wish(tmp_path / "none", **given)) == code
    assert sentence in capsys.readouterr().err
    with pytest.raises(UsageInvalid):
        keep(wish(tmp_path / "none", **given), Stop(), unheard)


def test_a_second_archiver_is_refused_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TopicFolder(tmp_path, "ticks").locked():
        assert journal(wish(tmp_path)) == 78
    assert "another process writes this archive" in capsys.readouterr().err


def test_the_command_knows_its_arguments() -> None:
    command = [sys.executable, "-P", "-m", "pipeline", "journal", "--to=x", "--", "a/b"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=journal_root())
    assert (ended.returncode, ended.stderr) == (2, "tidegate: 'a/b' is no name of a topic\n")


def journal_root() -> Path:
    return Path(journal_module.__file__).parents[2]
