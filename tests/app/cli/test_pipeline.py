"""Pipeline verbs are read here and carried out by the pipeline's own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dev
from tests.support.commands import environment, parsed, run
from tidegate.app.cli import pipeline
from tidegate.app.cli.installation import install_command
from tidegate.app.cli.main import main
from tidegate.app.cli.pipeline import pipeline_command, pipeline_environment
from tidegate.pipeline import command
from tidegate.pipeline.archive import journal, replay


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
    monkeypatch.setattr("tidegate.app.cli.pipeline.exec_command", became.append)
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
        pipeline.exec_command(["python"])
    assert signals <= held[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to run"),
        (["a.toml", "--checkpoints", "c"], "--checkpoints goes with --topics"),
    ],
)
def test_what_cannot_be_run_is_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.command(["run", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"tidegate: {said}")
    assert err.count("\n") == 1


@pytest.mark.system
@pytest.mark.nightly
def test_a_folder_of_the_same_name_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__main__.py").write_text("raise SystemExit(99)")
    ended = run("pipeline", "run", "none.toml", cwd=str(tmp_path))
    assert (ended.code, ended.err.count("\n")) == (78, 1)
    assert ended.err.startswith("tidegate: ")


@pytest.mark.system
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
        "tidegate.app.cli.installation.find_spec", lambda name: None if name == "pyspark" else name
    )
    assert main(["pipeline", "run", "a.toml"]) == 78
    assert capsys.readouterr().err == (
        "tidegate: `tidegate pipeline` needs the extra spark, which is not installed: "
        f"{install_command('spark')}\n"
    )


def handed_on(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    """What the pipeline's own process is asked to do, once the command would have become it."""
    became: list[list[str]] = []
    wishes: list[Any] = []

    def take(wanted: Any) -> int:
        wishes.append(wanted)
        return 0

    monkeypatch.setattr("tidegate.app.cli.pipeline.exec_command", became.append)
    verb = parsed("pipeline", *words)
    verb.command.invoke(verb)
    assert became[0][1:4] == ["-P", "-m", "tidegate.pipeline"]
    for module in (journal, replay):
        monkeypatch.setattr(module, words[0], take, raising=False)
    assert command.command(became[0][4:]) == 0
    return wishes[0]


def test_archiving_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["journal", "ticks", "--to", "a", "--available-now", "--interval", "1m"]
    wanted = handed_on(monkeypatch, *words, "--checkpoint=-c", "--master=local[1]")
    assert (wanted.topic, wanted.archive, wanted.checkpoint) == ("ticks", Path("a"), Path("-c"))
    assert (wanted.options.available_now, wanted.compact, wanted.interval) == (True, False, "1m")
    assert wanted.options.master == "local[1]"
    assert handed_on(monkeypatch, "journal", "t", "--to=a", "--compact").compact


def test_a_replay_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["replay", "a", "--topic", "t", "--from=2026-11-21", "--until", "2026-11-22"]
    wanted = handed_on(monkeypatch, *words, "--rate", "500KB", "--max-gap", "2s")
    assert (wanted.path, wanted.topic) == (Path("a"), "t")
    assert (wanted.from_time, wanted.until_time) == ("2026-11-21", "2026-11-22")
    assert (wanted.rate, wanted.max_gap, wanted.source_topic) == ("500KB", "2s", None)


def test_a_checkout_runs_its_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("tidegate.app.cli.pipeline.exec_command", became.append)
    main(["bench", "fanout", "engine"])
    assert became[0][1:] == ["-P", "-m", "bench", "fanout", "engine"]


def test_an_installed_package_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pipeline, "__file__", str(tmp_path / "app" / "cli" / "it.py"))
    assert main(["bench"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "python3 dev.py bench" in said
