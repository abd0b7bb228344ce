"""The pipeline runs in its own process; its sentences and codes come through."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import dev
from app.cli import pipeline
from app.cli.arguments import Parser
from app.cli.pipeline import pipeline_command, pipeline_environment
from tests.support.commands import run


def test_the_packages_beside_app_are_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert pipeline_environment()["PYTHONPATH"] == os.pathsep.join([str(dev.ROOT), "elsewhere"])
    monkeypatch.delenv("PYTHONPATH")
    assert pipeline_environment()["PYTHONPATH"] == str(dev.ROOT)
    assert pipeline_command("a.toml")[1:] == ["-P", "-m", "pipeline", "run", "a.toml"]


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("a.toml --no-restart --master local[2]", "--no-restart --master=local[2] -- a.toml"),
        ("--topics --gateway http://g --checkpoints c --available-now",
         "--topics --available-now --gateway=http://g --checkpoints=c"),
    ],
)  # fmt: skip
def test_what_is_run_is_passed_on(monkeypatch: pytest.MonkeyPatch, words: str, passed: str) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(pipeline, "_become", became.append)
    parser = Parser()
    pipeline.add_verb(parser.add_subparsers())
    arguments = parser.parse_args(["pipeline", "run", *words.split()])
    arguments.run(arguments)
    assert became[0][1:] == ["-P", "-m", "pipeline", "run", *passed.split()]


def test_a_signal_waits_until_the_pipeline_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    signals, held = {signal.SIGINT, signal.SIGTERM}, list[set[int]]()

    def execve(*_: object) -> None:
        held.append(signal.pthread_sigmask(signal.SIG_UNBLOCK, signals))
        raise InterruptedError

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(InterruptedError):
        pipeline._become(["python"])
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
