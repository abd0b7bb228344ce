"""The pipeline as a process of its own: killed, restarted, calls to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dev import ROOT
from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.pipeline.naive_newest import newest_by_key
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.streams.run import Topics, run

FILES = 11  # so that numbers of batches have one digit and two
LINES_PER_FILE = 50
KEYS = 11
KILLED_AFTER = 2

TOML = """\
gateway = "{address}"
[pipeline.landed]
key = ["/k"]
interval = "20ms"
files_per_batch = 1
source = {{kind = "files", path = "in/*.ndjson"}}
sink = {{topic = "newest"}}
"""


@pytest.mark.nightly  # two starts of Java; test_stream.py repeats such a batch in one session
@pytest.mark.spark
def test_a_kill_between_the_sinks_commit_and_sparks_neither_loses_nor_doubles(
    journals: Journals, tmp_path: Path
) -> None:
    require_java()
    written = landed_files(tmp_path / "in")
    definition = tmp_path / "landed.toml"
    definition.write_text(TOML.format(address=journals.address))
    journals.hold_after = KILLED_AFTER
    with Child(
        [sys.executable, "-m", "tidegate.pipeline", "run", str(definition)], tmp_path
    ) as first:
        # The server has taken a batch and holds the answer back: the narrowest place for a kill.
        assert journals.held.wait(HANGS_S), first.output()
        started = first.started()
        assert any("java" in process.name() for process in started)
        first.kill()
    # Java is not in the driver's group: it ends with its standard input, and workers with it.
    assert psutil.wait_procs(started, HANGS_S)[1] == []
    journals.hold_after = None
    sink = journals.topics["newest"]
    assert len(sink.publications) == KILLED_AFTER
    with Child(
        [sys.executable, "-m", "tidegate.pipeline", "run", str(definition)], tmp_path
    ) as second:
        second.await_until(lambda: len(sink.publications) >= FILES, HANGS_S)
        assert second.stop(signal.SIGTERM) == 0, second.output()
        assert f"{FILES} refused" not in second.output()
        assert "written by an earlier run" in second.output()
        assert "stopping …" in second.output()
        assert "Traceback" not in second.output()
    assert newest_by_key(sink.values, "k") == newest_by_key(written, "k")
    assert len(sink.publications) == FILES
    assert [len(each.values) for each in sink.publications] == [KEYS] * FILES
    places = [json.loads(value)["n"] for value in sink.values]
    assert len(set(places)) == len(places)
    assert sink.repeats == 1
    letters = list((tmp_path / "checkpoints/landed/dead").iterdir())
    assert sorted(letter.name for letter in letters) == [
        f"batch-{at:09d}.ndjson" for at in range(FILES)
    ]


FAKE_JAVA = """\
#!/bin/sh
case "$1" in
    -version) echo 'openjdk version "17.0.1"' >&2; moment=version ;;
    *) moment=start ;;
esac
echo $$ >> "$JAVA_HOME/pids"
# Java ends with its input.
[ "$moment" = "$MOMENT" ] && kill -s "$SIGNAL" "$DRIVER" && exec cat
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("moment", "name", "code"), [("version", "INT", 130), ("start", "TERM", 0)]
)
def test_a_signal_before_spark_is_there_ends_it_at_once_in_one_line(
    tmp_path: Path, moment: str, name: str, code: int
) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(FAKE_JAVA)
    java.chmod(0o755)
    definition = tmp_path / "s.toml"
    definition.write_text(TOML.format(address="http://127.0.0.1:1"))
    given = {"JAVA_HOME": str(tmp_path), "MOMENT": moment, "SIGNAL": name}
    ended = subprocess.run(
        [
            "sh",
            "-c",
            f'export DRIVER=$$; exec "{sys.executable}" -m tidegate.pipeline run "{definition}"',
        ],
        cwd=ROOT,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout == "starting Spark on local[*]\nstopping …\n"
    begun = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    there = [psutil.Process(pid) for pid in begun if psutil.pid_exists(pid)]
    assert psutil.wait_procs(there, HANGS_S)[1] == []


def landed_files(folder: Path) -> list[bytes]:
    """Files whose times and names agree; the lines in order of publication."""
    folder.mkdir()
    written: list[bytes] = []
    for at in range(FILES):
        first = at * LINES_PER_FILE
        lines = [b'{"k":%d,"n":%d}' % (n % KEYS, n) for n in range(first, first + LINES_PER_FILE)]
        (folder / f"{at:03d}.ndjson").write_bytes(b"\n".join([*lines, b"{broken"]))
        written += lines
    return written


def test_topics_are_those_of_the_files_gateway_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = tmp_path / "s.toml"
    definition.write_text(TOML.format(address="http://127.0.0.1:9999/"))
    definitions = read_definitions(definition)
    assert Topics(None, tmp_path).address(definitions) == "http://127.0.0.1:9999"
    assert Topics("http://other/", tmp_path).address(definitions) == "http://other"
    monkeypatch.delenv("TIDEGATE_GATEWAY", raising=False)
    assert Topics(None, tmp_path).address([]) == "http://127.0.0.1:8080"
    monkeypatch.setenv("TIDEGATE_GATEWAY", "http://desk:1")
    assert Topics(None, tmp_path).address([]) == "http://desk:1"


def test_a_wrong_definition_is_exit_78_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*arguments: object) -> None:
        raise AssertionError("nobody waits for Spark to hear of a wrong definition")

    monkeypatch.setattr("tidegate.pipeline.streams.run.spark_session", started)
    definition = tmp_path / "s.toml"
    definition.write_text("[pipeline.s]\nfilter = 1\n")
    assert run(definition) == 78
    said = capsys.readouterr().err
    assert said.startswith("tidegate: s.toml: pipeline.s.interval: is missing, expected a duration")
    assert said.count("\n") == 1
