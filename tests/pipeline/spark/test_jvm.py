"""Spark's Java: required versions, failed starts, its own process session, and its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.commands import environment
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java as require_real_java
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.spark.jvm import Jvm, require_java

pytestmark = pytest.mark.system  # a shell stands in for Java


def run_python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python until it exits."""
    return subprocess.run(
        [sys.executable, *words],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )


def write_java(folder: Path, line: str) -> None:
    """Write a `java` that only prints a line to standard error."""
    (folder / "bin").mkdir(exist_ok=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("line", "major"), [('openjdk version "17.0.15" 2025', 17), ('java version "21"', 21)]
)
def test_java_17_and_newer_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, major: int
) -> None:
    write_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == major


@pytest.mark.parametrize(
    ("line", "said"),
    [('java version "1.8.0_392"', "is version 8"), ("nonsense", "of an unknown version")],
)
def test_an_old_or_unknown_java_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    write_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match=f"{said}: Spark needs Java 17 or newer"):
        require_java()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'WARNING: none'; echo 'Error: no memory' >&2; exit 1", "Error: no memory"),
        ("exit 1", "it says nothing"),
    ],
)
def test_a_java_that_does_not_start_is_one_sentence_and_exit_78(
    tmp_path: Path, script: str, said: str
) -> None:
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin/spark-submit"
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    definition = tmp_path / "s.toml"
    definition.write_text(
        '[pipeline.s]\nkey = ["/a"]\ninterval = "1s"\n'
        'source = {kind = "files", path = "in"}\nsink = {topic = "newest"}\n'
    )
    write_java(tmp_path, 'version "17"')
    given = {"SPARK_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    ended = run_python("-m", "tidegate.pipeline", "run", str(definition), **given)
    assert ended.stdout == "starting Spark on local[*]\n"
    assert ended.stderr == f"tidegate: Spark's Java does not start: {said}\n"
    assert ended.returncode == 78


STARTED = """\
import os, sys
from tidegate.pipeline.spark.jvm import Jvm
java = Jvm({"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})
process = java.gateway.proc
print(os.getsid(process.pid) == process.pid, os.getsid(0) == process.pid)
java.end()
print(process.returncode is not None)
"""


@pytest.mark.spark
@pytest.mark.nightly
def test_java_has_its_own_session_and_prints_nothing() -> None:
    require_real_java()
    shown = run_python("-c", STARTED)
    assert (shown.stdout, shown.stderr) == ("True False\nTrue\n", "")


def test_a_java_that_does_not_exit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.pipeline.spark.jvm.GONE_SECONDS_MAX", 0.01)
    words = ["sleep", "1000"]  # which does not notice that its input is closed
    process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    jvm = object.__new__(Jvm)
    jvm.gateway = SimpleNamespace(proc=process)
    jvm.end()
    assert process.returncode == -signal.SIGKILL
