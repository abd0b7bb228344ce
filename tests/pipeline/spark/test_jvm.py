"""Java is started so that nothing but us ends it, and nothing of it is left when we are gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.signals import signals_that_end_no_wait
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.operations.shutdown import CutOff, Stop
from tidegate.pipeline.spark import jvm as module
from tidegate.pipeline.spark.jvm import Jvm, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system  # a shell stands in for Java

REPORTS_PORT = """
printf '\\0\\0\\022\\147\\0\\0\\0\\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
"""
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def java_that_says(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


@pytest.mark.parametrize(
    ("line", "major"), [('openjdk version "17.0.15" 2025', 17), ('java version "21"', 21)]
)
def test_java_17_and_newer_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, major: int
) -> None:
    java_that_says(tmp_path, line, monkeypatch)
    assert require_java() == major


@pytest.mark.parametrize(
    ("line", "said"),
    [('java version "1.8.0_392"', "is version 8"), ("nonsense", "of an unknown version")],
)
def test_an_old_java_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    java_that_says(tmp_path, line, monkeypatch)
    with pytest.raises(SparkUnavailable, match=f"{said}: Spark needs Java 17 or newer"):
        require_java()


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose `bin/spark-submit` is still to be written."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr("pyspark.find_spark_home._find_spark_home", lambda: str(tmp_path))
    for name in (PORT, SECRET, "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def submit_does(home: Path, script: str) -> None:
    """Write `spark-submit`; it leaves its process id and its arguments behind."""
    path = home / "bin/spark-submit"
    path.write_text(f'#!/bin/sh\necho $$ > {home}/pid\necho "$@" > {home}/words\n{script}\n')
    path.chmod(0o755)


def pid(home: Path) -> int:
    return int((home / "pid").read_text())


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_pyspark_finds_it_while_it_is_at_hand(spark_home: Path) -> None:
    submit_does(spark_home, f"{REPORTS_PORT} cat > /dev/null")
    jvm = Jvm({"spark.master": "local"})
    with jvm.at_hand():
        assert (os.environ[PORT], os.environ[SECRET]) == ("4711", "abc")
    assert PORT not in os.environ
    assert SECRET not in os.environ
    assert (spark_home / "words").read_text() == "--conf spark.master=local pyspark-shell\n"
    jvm.end()
    assert is_gone(pid(spark_home))


def test_it_is_in_no_group_of_ours_and_says_nothing_on_the_terminal(
    spark_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    submit_does(spark_home, f"echo WARNING; echo loud >&2; {REPORTS_PORT} cat > /dev/null")
    jvm = Jvm({})
    assert os.getsid(pid(spark_home)) == pid(spark_home) != os.getsid(0)
    jvm.end()
    assert capfd.readouterr() == ("", "")


def test_what_does_not_end_by_itself_is_killed(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GONE_SECONDS_MAX", 0.01)
    submit_does(spark_home, f"{REPORTS_PORT} exec sleep 1000")
    Jvm({}).end()
    assert is_gone(pid(spark_home))


def test_a_java_that_does_not_start_is_an_error_with_its_first_line(spark_home: Path) -> None:
    submit_does(spark_home, "echo 'WARNING: none'; echo 'Error: no memory' >&2; exit 1")
    with pytest.raises(SparkUnavailable, match="Spark's Java does not start: Error: no memory"):
        Jvm({})
    submit_does(spark_home, "exit 1")
    with pytest.raises(SparkUnavailable, match="it says nothing"):
        Jvm({})


Signals = Callable[[], AbstractContextManager[None]]


def exit_code_at_cut_off(work: Callable[[], object], signals: Signals = nullcontext) -> int:
    """The exit code of a command that a signal cuts off in its work."""
    stop = Stop()
    with stop.listening(), signals(), pytest.raises(CutOff), stop.cutting_off():
        work()
    return stop.exit_code


def test_a_signal_in_the_middle_of_its_start_leaves_nothing_behind(spark_home: Path) -> None:
    submit_does(spark_home, "kill -INT $PPID; exec sleep 1000")
    assert exit_code_at_cut_off(lambda: Jvm({})) == 130
    assert is_gone(pid(spark_home))


def launcher_says(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a Java there whose `-cp` does what Spark's launcher does."""
    (folder / "jars").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


LOCAL = {"spark.master": "local[2]"}
SIGNALS_AND_HANGS = 'echo $$ > "$0.pid"; kill -INT $PPID; exec sleep 1000'
STARTS_DIRECTLY = """
printf 'a note of Java\\n\\0\\n%s\\0-c\\0%s\\0' sh 'env > "$SEEN"; exit 1'
"""


@pytest.mark.parametrize("signals", [nullcontext, signals_that_end_no_wait])
def test_a_signal_before_a_process_is_noted_leaves_nothing_behind(
    spark_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    signals: Signals,
) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        process = popen(*given, **more)
        begun.append(process)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    launcher_says(spark_home, "exec sleep 1000", monkeypatch)
    monkeypatch.setattr(subprocess, "Popen", start)
    for work in (lambda: Jvm(LOCAL), require_java):
        assert exit_code_at_cut_off(work, signals) == 130
    assert [is_gone(process.pid) for process in begun] == [True, True]


@pytest.mark.parametrize("signals", [nullcontext, signals_that_end_no_wait])
def test_a_signal_in_the_middle_of_its_launcher_leaves_nothing_behind(
    spark_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    signals: Signals,
) -> None:
    launcher_says(spark_home, SIGNALS_AND_HANGS, monkeypatch)
    assert exit_code_at_cut_off(lambda: Jvm(LOCAL), signals) == 130
    assert is_gone(int((spark_home / "bin/java.pid").read_text()))
    assert not (spark_home / "words").exists()


def test_local_python_workers_find_no_spark_home(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher_says(spark_home, STARTS_DIRECTLY, monkeypatch)
    monkeypatch.setenv("SEEN", str(spark_home / "env"))
    with pytest.raises(SparkUnavailable):
        Jvm(LOCAL)
    environment = (spark_home / "env").read_text().splitlines()
    assert "PYTHONHASHSEED=0" in environment
    assert not [line for line in environment if line.startswith("SPARK_HOME=")]


@pytest.mark.parametrize(
    ("settings", "variable", "script"),
    [
        ({"spark.master": "spark://there:7077"}, None, STARTS_DIRECTLY),
        (LOCAL, "SPARK_CONF_DIR", STARTS_DIRECTLY),
        (LOCAL, None, "exit 1"),
        (LOCAL, None, "echo nothing of the kind"),
    ],
)
def test_spark_submit_starts_a_spark_that_others_configure_or_share(
    spark_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    variable: str | None,
    script: str,
) -> None:
    launcher_says(spark_home, script, monkeypatch)
    if variable:
        monkeypatch.setenv(variable, str(spark_home))
    submit_does(spark_home, "exit 1")
    with pytest.raises(SparkUnavailable):
        Jvm(settings)
    assert (spark_home / "words").exists()


@pytest.mark.spark
def test_workers_of_local_spark_import_no_zip(spark: SparkSession) -> None:
    def package(_: int) -> str | None:
        import pyspark

        return pyspark.__file__

    [path] = spark.sparkContext.parallelize([1], 1).map(package).collect()
    assert path is not None
    assert Path(path).is_file()  # not in an archive of sources, which Python compiles each time
