"""The pipeline runs in its own process; its sentences and codes come through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dev
from tests.support.commands import environment, parsed, run
from tidegate.app.cli import pipeline
from tidegate.app.cli.main import main
from tidegate.app.cli.pipeline import pipeline_command, pipeline_environment


def test_the_packages_beside_app_are_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert pipeline_environment()["PYTHONPATH"] == os.pathsep.join([str(dev.ROOT), "elsewhere"])
    monkeypatch.delenv("PYTHONPATH")
    assert pipeline_environment()["PYTHONPATH"] == str(dev.ROOT)
    assert pipeline_command("run", "a.toml")[1:] == [
        "-P",
        "-m",
        "tidegate.pipeline",
        "run",
        "a.toml",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "a.toml --no-restart --master local[2]",
        "--topics --gateway http://g --checkpoints c --available-now",
    ],
)
def test_what_is_run_is_passed_on(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("tidegate.app.cli.pipeline.become", became.append)
    verb = parsed("pipeline", "run", *words.split())
    verb.command.invoke(verb)
    assert became[0][1:] == ["-P", "-m", "tidegate.pipeline", "run", *words.split()]


def test_a_signal_waits_until_the_pipeline_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    signals, held = {signal.SIGINT, signal.SIGTERM}, list[set[int]]()

    def execve(*_: object) -> None:
        held.append(signal.pthread_sigmask(signal.SIG_UNBLOCK, signals))
        raise InterruptedError

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(InterruptedError):
        pipeline.become(["python"])
    assert signals <= held[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is nothing to run"),
        (["a.toml", "--checkpoints", "c"], "--checkpoints goes with --topics"),
        (["a.toml", "--gateway", "http://g"], "--gateway goes with --topics"),
    ],
)
def test_what_cannot_be_run_is_2(words: list[str], said: str) -> None:
    ended = run("pipeline", "run", *words)
    assert ended.code == 2
    assert ended.err.startswith(f"tidegate: {said}")
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_a_definition_that_is_not_there_is_78(tmp_path: Path) -> None:
    ended = run("pipeline", "run", str(tmp_path / "none.toml"))
    assert ended.code == 78
    assert ended.err.startswith("tidegate: ")
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_a_folder_of_the_same_name_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__main__.py").write_text("raise SystemExit(99)")
    assert run("pipeline", "run", "none.toml", cwd=str(tmp_path)).code == 78


@pytest.mark.slow
def test_help_and_complaints_wait_for_no_spark() -> None:
    code = (
        "import sys, tidegate.app.cli.main as it\n"
        "it.main(['pipeline', 'run', '--help']), it.main(['pipeline', 'rum'])\n"
        "print(*sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment()
    )
    modules = ended.stdout.splitlines()[-1].split()
    assert "tidegate.pipeline" in modules
    loaded = {name.partition(".")[0] for name in modules}
    assert loaded & {"pyspark", "pandas", "pyarrow", "httpx2", "redis"} == set()
    assert "Did you mean 'run'?" in ended.stderr


def test_without_spark_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "tidegate.app.cli.extras.find_spec", lambda name: None if name == "pyspark" else name
    )
    assert main(["pipeline", "run", "a.toml"]) == 78
    assert capsys.readouterr().err == (
        "tidegate: `tidegate pipeline` needs pyspark, which is not installed: "
        'pip install "tidegate[spark]"\n'
    )
