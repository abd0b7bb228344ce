"""The archive of Java's classes: as a whole or not at all, and in use where it is there."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import environment, run
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java
from tidegate.pipeline.command import command
from tidegate.pipeline.spark import class_archive as module
from tidegate.pipeline.spark import jvm, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive goes; Java and Spark are played."""
    path = tmp_path / "cache/classes.jsa"
    monkeypatch.setattr(jvm, "class_archive", lambda: path)
    monkeypatch.setattr(session, "spark_session", _session)
    monkeypatch.setattr(module, "_train", lambda spark, checkpoint: None)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    return path


def _session(master: str) -> AbstractContextManager[None]:
    return nullcontext()


def test_it_is_there_once_java_has_written_it(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(seconds_max: float) -> None:
        options = os.environ["SPARK_SUBMIT_OPTS"]
        assert options.startswith("-Dmine=1 ")
        assert not target.exists()
        Path(options.partition("ArchiveClassesAtExit=")[2].rstrip('"')).write_bytes(b"classes")

    monkeypatch.setattr(session, "end_java", end)
    assert command(["prepare"]) == 0
    assert target.read_bytes() == b"classes"
    assert list(target.parent.iterdir()) == [target]
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"
    assert str(target) in capsys.readouterr().out


def test_a_java_that_writes_none_is_one_sentence(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "end_java", lambda seconds_max: None)
    assert command(["prepare"]) == 78
    assert list(target.parent.iterdir()) == []
    said = capsys.readouterr().err
    assert said == "tidegate: this Java writes no archive of classes; OpenJDK does\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target.parent.touch()
    assert command(["prepare"]) == 78
    assert capsys.readouterr().err == f"tidegate: cannot write {target}: File exists\n"


@pytest.mark.spark
def test_workers_of_local_spark_import_no_zip(spark: SparkSession) -> None:
    def package(_: int) -> str | None:
        import pyspark

        return pyspark.__file__

    [path] = spark.sparkContext.parallelize([1], 1).map(package).collect()
    assert path is not None
    assert Path(path).is_file()  # not in an archive of sources, which Python compiles each time


WITH_ARCHIVE = """\
import psutil
from tidegate.pipeline.spark.jvm import class_archive
from tidegate.pipeline.spark.session import spark_session
with spark_session("local[1]"):
    javas = [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    print(str(class_archive()) in {each.path for java in javas for each in java.memory_maps()})
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_local_spark_maps_what_the_command_prepares(tmp_path: Path) -> None:
    require_java()
    prepared = run("pipeline", "prepare", XDG_CACHE_HOME=str(tmp_path))
    assert prepared.code == 0, prepared.err
    shown = subprocess.run(
        [sys.executable, "-c", WITH_ARCHIVE],
        env={**environment(), "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANGS_S,
    )
    assert shown.stdout == "True\n"
