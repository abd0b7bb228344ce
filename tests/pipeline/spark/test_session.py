from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.signals import await_wait_of_main_thread, signals_that_interrupt_no_wait
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.operations.shutdown import CutOff, Stop
from tidegate.pipeline.spark import session as module
from tidegate.pipeline.spark.session import open_session, spark_session
from tidegate.pipeline.streams.run import run


class FakeSpark:
    """Stands in for Java or a session on it: counts ends, and records the thread that uses it."""

    def __init__(self) -> None:
        self.ends = 0
        self.thread: threading.Thread | None = None

    def createDataFrame(self, *_: object) -> None:  # noqa: N802 - Spark's name
        self.thread = threading.current_thread()

    def end(self, *_: object) -> None:
        self.ends += 1

    stop = end


@pytest.mark.parametrize(
    ("error", "closed", "cut_off"),
    [(None, 1, 0), (SparkUnavailable("no"), 1, 0), (KeyboardInterrupt(), 0, 1)],
)
def test_a_session_is_closed_unless_its_jvm_is_gone(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, closed: int, cut_off: int
) -> None:
    spark, java = FakeSpark(), FakeSpark()
    monkeypatch.setattr(module, "open_session", lambda master, jars: spark)
    monkeypatch.setattr(module, "_STARTED", [java])

    def work() -> None:
        with spark_session("local"):
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    assert (spark.ends, java.ends) == (closed, cut_off)


class StartingJava:
    """Stands in for a Java process on which a session is created; `gone` is set at its end."""

    gateway = object()

    def __init__(self) -> None:
        self.gone = threading.Event()

    def end(self, *_: object) -> None:
        self.gone.set()


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> StartingJava:
    java = StartingJava()
    monkeypatch.setattr(module, "require_java", lambda: 17)
    monkeypatch.setattr(module, "_STARTED", [])
    monkeypatch.setattr(module, "Jvm", lambda settings: java)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda gateway: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(module, "_prepare_environment", lambda local: None)
    return java


@pytest.mark.parametrize("master", ["local", "spark://somewhere:7077"])
def test_a_session_is_created_in_a_thread_where_pyspark_installs_no_signal_handler(
    starting: StartingJava, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    spark, threads = FakeSpark(), []

    def work(*_: object) -> FakeSpark:
        threads.append(threading.current_thread())
        return spark

    for name in ("_connected", "prepare_executors", "_fit_shuffles"):
        monkeypatch.setattr(module, name, work)
    opened: object = open_session(master)
    assert opened is spark
    assert spark.thread is threading.main_thread()
    assert threading.main_thread() not in threads
    assert len(threads) == (1 if master == "local" else 3)
    assert not starting.gone.is_set()


@pytest.mark.parametrize("signals", [nullcontext, signals_that_interrupt_no_wait])
@pytest.mark.parametrize("name", ["_connected", "prepare_executors"])
def test_a_signal_while_a_session_is_created_ends_java_and_prints_nothing(
    starting: StartingJava,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    signals: Callable[[], AbstractContextManager[None]],
) -> None:
    stop = Stop()

    def interrupted(*_: object) -> None:
        await_wait_of_main_thread()
        os.kill(os.getpid(), signal.SIGINT)
        starting.gone.wait(HANGS_S)
        warnings.warn("the JVM is gone", stacklevel=1)
        raise SparkUnavailable("gone")

    monkeypatch.setattr(module, "_connected", lambda settings: FakeSpark())
    monkeypatch.setattr(module, name, interrupted)
    with stop.listening(), signals(), pytest.raises(CutOff), stop.cutting_off():
        open_session("spark://somewhere:7077")
    assert starting.gone.is_set()
    assert stop.exit_code == 130
    assert capfd.readouterr() == ("", "")


def test_what_py4j_logs_to_the_root_logger_is_not_printed(
    starting: StartingJava, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_connected", lambda settings: FakeSpark())
    open_session("local")
    root = logging.getLogger()
    for path in ("/site-packages/py4j/java_gateway.py", "/elsewhere/source.py"):
        root.handle(logging.LogRecord("root", logging.ERROR, path, 1, path, None, None))
    assert caplog.messages == ["/elsewhere/source.py"]


def test_spark_connect_is_refused() -> None:
    with pytest.raises(SparkUnavailable, match="Spark Connect has no driver in this process"):
        open_session("sc://somewhere:15002")


def test_a_missing_java_is_one_sentence_and_exit_code_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    definition = tmp_path / "s.toml"
    definition.write_text(
        '[pipeline.s]\nkey = ["/a"]\ninterval = "1s"\n'
        'source = {kind = "tidegate", topic = "raw"}\nsink = {topic = "newest"}\n'
    )
    assert run(definition) == 78
    said = capsys.readouterr().err
    assert said.startswith("tidegate: no java found: Spark needs Java 17")
    assert said.count("\n") == 1
