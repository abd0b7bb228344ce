"""The child is ended by its id, whatever it does with signals, and its last lines are shown."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.children import runs
from tests.support.deadlines import HANGS_S
from tidegate.app.cli.demo.spark import SparkChild, definition
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.stream import read_definitions

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".pid", "w").write(str(child.pid))
time.sleep(600)
"""


def child(code: str) -> SparkChild:
    def command(file: str) -> list[str]:
        return [sys.executable, "-c", code, file]

    return SparkChild((command, dict(os.environ)), "http://127.0.0.1:8080")


def test_the_definition_is_one_that_the_pipeline_takes(tmp_path: Path) -> None:
    file = tmp_path / "demo.toml"
    file.write_text(definition("http://127.0.0.1:1234"))
    (stream,) = read_definitions(file)
    assert stream.gateway == "http://127.0.0.1:1234"
    assert isinstance(stream.source, TopicSource)
    assert (stream.source.topic, stream.sink.topic) == ("market", "market.1s")
    assert (str(stream.key), stream.interval_ms) == ("[/tickerId]", 1000)


@pytest.mark.system
def test_all_of_a_stubborn_child_is_gone(tmp_path: Path) -> None:
    running = child(STUBBORN)
    with running:
        file = Path(running.folder, "demo.toml.pid")
        give_up_at = time.monotonic() + HANGS_S
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        grandchild = psutil.Process(int(file.read_text()))
        assert running.failure() == ""
        running.stop(seconds_max=0.1)
    while runs(grandchild):  # a signal takes a moment
        assert time.monotonic() < give_up_at + HANGS_S
        time.sleep(0.01)
    assert not Path(running.folder).exists()


@pytest.mark.system
def test_a_child_that_ends_by_itself_is_reported_with_its_last_line() -> None:
    code = "import sys; print('starting'); sys.exit('tidegate: no java found')"
    with child(code) as running:
        give_up_at = time.monotonic() + HANGS_S
        while not running.failure():
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        assert running.failure() == "The Spark pipeline ended with 1: no java found"
