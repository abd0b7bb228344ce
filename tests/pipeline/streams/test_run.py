"""The pipeline as a process of its own: killed, restarted, calls to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from dev import ROOT
from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.pipeline.naive_newest import newest_by_key
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java
from tests.support.rules import rule
from tidegate.pipeline.connection import AT_ONCE, PATIENT
from tidegate.pipeline.definitions.spark_topics import streams_of
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import GatewayUnreachable
from tidegate.pipeline.streams import run as module
from tidegate.pipeline.streams.run import Fillable, SparkTopicWatcher, TopicList, Topics, run

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


PX = {
    "topic": "px", "key": ["/id"], "retain": True, "epoch": "e1", "merge": "replace",
    "source": None,
}  # fmt: skip


def declared(name: str, epoch: str = "e2", **source: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("filter", "grouping", "projection"))
    asked = {"topic": "px", "interval": "1s", "engine": "spark", **nothing, **source}
    return {"topic": name, "key": ["/id"], "retain": True, "epoch": epoch, "source": asked}


@dataclass
class FakeRunner:
    """A gateway's list, the runner, and the calls of the runner; a clock that is set by hand."""

    topics: list[dict[str, Any]] = field(default_factory=lambda: [PX])
    restarts: bool = True
    now_s: float = 0.0
    is_out: bool = False
    said: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = SparkTopicWatcher(
            self._fillable, cast(Any, self), self.said.append,
            restarts=self.restarts, monotonic=lambda: self.now_s,
        )  # fmt: skip

    def _fillable(self) -> Fillable:
        if self.is_out:
            raise GatewayUnreachable("nobody answers")
        return streams_of(self.topics, "http://g", Path("/c"), {"taken"})

    def join(self, definition: Any) -> None:
        self.calls.append(f"join {definition.sink.topic} {definition.interval_text}")

    def leave(self, name: str, *, forget: bool) -> None:
        self.calls.append(f"leave {name.rpartition('-')[0]}{' for good' if forget else ''}")

    def lost(self) -> list[str]:
        return self.gone

    def look(self, *topics: dict[str, Any]) -> list[str]:
        """The calls of the runner after two seconds in which topics have become these."""
        self.topics = [PX, *topics]
        self.calls.clear()
        self.now_s += 2.0
        self.watcher.look()
        return self.calls


@rule("pipeline-14")
def test_streams_start_and_stop_with_their_topics() -> None:
    fake = FakeRunner([PX, declared("a")])
    fake.watcher.begin()
    assert fake.calls == ["join a 1s"]
    assert fake.look(declared("a")) == []
    assert fake.look(declared("a"), declared("b")) == ["join b 1s"]
    assert fake.look(declared("b")) == ["leave a for good"]
    assert fake.look(declared("b", "e9")) == ["leave b for good", "join b 1s"]


@rule("pipeline-13")
def test_another_interval_continues_and_another_source_begins_again() -> None:
    fake = FakeRunner([PX, declared("a")])
    fake.watcher.begin()
    assert fake.look(declared("a", interval="2s")) == ["leave a", "join a 2s"]
    again = ["leave a for good", "join a 2s"]
    assert fake.look(declared("a", interval="2s", filter="/n > 1")) == again


@rule("pipeline-14")
def test_the_list_is_read_every_two_seconds_and_streams_run_on_without_it() -> None:
    fake = FakeRunner([PX, declared("a")])
    fake.watcher.begin()
    fake.topics, fake.now_s = [PX], 1.9
    fake.watcher.look()
    assert fake.calls == ["join a 1s"]
    fake.is_out = True
    assert fake.look() == fake.look() == []
    assert fake.said == ["cannot list the topics; running streams go on: nobody answers"]
    fake.is_out = False
    assert fake.look() == ["leave a for good"]


@rule("pipeline-14")
def test_no_topic_is_said_once_and_waited_for() -> None:
    fake = FakeRunner()
    fake.watcher.begin()
    fake.look()
    assert fake.said == ["no topic says engine: spark; waiting for one"]
    assert fake.look(declared("a")) == ["join a 1s"]
    fake.look()
    assert len(fake.said) == 2


@rule("pipeline-13")
@pytest.mark.parametrize("restarts", [True, False])
def test_a_stream_that_lost_its_source_begins_with_the_records(restarts: bool) -> None:
    fake = FakeRunner([PX, declared("a")], restarts=restarts)
    fake.watcher.begin()
    [definition], _ = streams_of([PX, declared("a")], "http://g", Path("/c"), ())
    fake.gone = [definition.name]
    assert fake.look(declared("a")) == (["leave a for good", "join a 1s"] if restarts else [])


@rule("pipeline-12")
def test_topics_of_the_file_are_left_and_unfit_ones_are_reported_once() -> None:
    other = {**declared("other"), "key": ["/venue"]}
    fake = FakeRunner([PX, declared("taken"), other])
    fake.watcher.begin()
    assert fake.look(other) == []
    assert [line.partition(":")[0] for line in fake.said] == [
        "topic other is not filled",
        "no topic says engine",
    ]


@rule("pipeline-14")
def test_pages_are_read_to_the_end_and_known_ones_are_kept(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAGE", "/v1/topics?limit=2")
    for name in "abc":
        journals.topic(name)
    listed = TopicList(journals.address)
    assert [topic["topic"] for topic in listed.read(PATIENT)] == ["a", "b", "c"]
    first = listed.read(AT_ONCE)
    assert listed.read(AT_ONCE)[0] is first[0]
    journals.topic("d")
    again = listed.read(AT_ONCE)
    assert [topic["topic"] for topic in again] == ["a", "b", "c", "d"]
    assert again[0] is first[0]
    assert again[2] is not first[2]
    assert journals.lists == 8


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(GatewayUnreachable):
        TopicList("http://127.0.0.1:9").read(AT_ONCE)
