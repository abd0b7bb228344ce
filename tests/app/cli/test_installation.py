"""Completion of the shells, and the benchmark suite of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Ended, run
from tidegate.app.cli import installation
from tidegate.app.cli.main import main


def completed(words: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What bash is offered for the last of these words."""
    parts = words.split(" ")
    variables = {
        "_TIDEGATE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1),
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, text in variables.items():
            patched.setenv(name, text)
        assert main([]) == 0
    return [line.partition(",")[2] for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tidegate sub", ["subscribe"]),
        ("tidegate topics ", ["list", "show", "create", "update", "delete"]),
        ("tidegate pipeline run --av", ["--available-now"]),
        ("tidegate subscribe px --format e", ["envelope"]),
        ("tidegate sow --as", ["--as-of"]),
    ],
)
def test_verbs_options_and_choices_are_offered(
    words: str, offered: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert sorted(completed(words, capfd)) == sorted(offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show-completion", shell]) == 0
    shown = capsys.readouterr().out
    assert f"_TIDEGATE_COMPLETE={shell}_complete" in shown


def test_a_shell_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--install-completion", "tcsh"]) == 2
    assert "'tcsh' is not one of" in capsys.readouterr().err


def install(home: Path, *words: str, **variables: str) -> Ended:
    return run("--install-completion", *words, stdin=b"", HOME=str(home), **variables)


@pytest.mark.slow
def test_installing_twice_is_installing_once(tmp_path: Path) -> None:
    rc = tmp_path / ".bashrc"
    rc.write_text("alias ll='ls -l'")  # and no line end
    for _ in range(2):
        assert install(tmp_path, SHELL="/bin/bash", XDG_DATA_HOME="").code == 0
    script = tmp_path / ".local" / "share" / "tidegate" / "completion.bash"
    assert rc.read_text() == f"alias ll='ls -l'\n. {script}\n"
    loaded = subprocess.run(
        ["bash", "--norc", "-c", f". {rc}; complete -p tidegate"], capture_output=True, text=True
    )
    assert loaded.stdout.startswith("complete ")


@pytest.mark.slow
def test_each_shell_finds_its_script(tmp_path: Path) -> None:
    variables = {"XDG_DATA_HOME": str(tmp_path / "d"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    assert install(tmp_path, "zsh", **variables, ZDOTDIR=str(tmp_path / "z")).code == 1
    assert install(tmp_path, "zsh", **variables).code == 0
    assert str(tmp_path / "d" / "tidegate" / "completion.zsh") in (tmp_path / ".zshrc").read_text()
    assert install(tmp_path, "fish", **variables).code == 0
    assert (tmp_path / "c" / "fish" / "completions" / "tidegate.fish").is_file()


def test_a_checkout_runs_its_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("tidegate.app.cli.pipeline.become", became.append)
    main(["bench", "loopback", "engine"])
    assert became[0][1:] == ["-P", "-m", "bench", "loopback", "engine"]


def test_an_installed_package_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "app" / "cli" / "it.py"))
    assert main(["bench"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "python3 dev.py bench" in said
