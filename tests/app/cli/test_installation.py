"""What is installed: versions, Java and completion of the shells."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Ended, call
from tests.support.outside import require_java
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
    return call("--install-completion", *words, stdin=b"", HOME=str(home), **variables)


def test_without_a_name_the_users_shell_is_meant(tmp_path: Path) -> None:
    refused = install(tmp_path, SHELL="")
    assert refused.code == 2
    assert "$SHELL is not set: name one of bash, zsh, fish." in refused.err
    assert install(tmp_path, SHELL="/usr/bin/tcsh").code == 2
    assert install(tmp_path, SHELL="/usr/bin/fish", XDG_CONFIG_HOME="").code == 0
    assert (tmp_path / ".config" / "fish" / "completions" / "tidegate.fish").is_file()


@pytest.mark.system
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


def test_each_shell_finds_its_script(tmp_path: Path) -> None:
    variables = {"XDG_DATA_HOME": str(tmp_path / "d"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    assert install(tmp_path, "zsh", **variables, ZDOTDIR=str(tmp_path / "z")).code == 1
    assert install(tmp_path, "zsh", **variables).code == 0
    assert str(tmp_path / "d" / "tidegate" / "completion.zsh") in (tmp_path / ".zshrc").read_text()
    assert install(tmp_path, "fish", **variables).code == 0
    assert (tmp_path / "c" / "fish" / "completions" / "tidegate.fish").is_file()


def test_each_part_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line[:13].strip() for line in lines]
    assert names == ["Tidegate", "Python", "Spark", "Java", "Redis client", "Redis server"]
    assert lines[1].split()[-1] == platform.python_version()


def test_what_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/none")
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "not installed" in line] == [
        "Java          not installed",
        "Redis server  not installed",
    ]
    assert installation.package_version("no-such-distribution") is None


def installed(folder: Path, version: str, *, release: bool) -> Path:
    """A Java's folder: its release file, or a program that says its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(("version", "good"), [("17.0.15", True), ("1.8.0_402", False)])
def test_the_version_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, release: bool, good: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path, version, release=release)))
    assert installation.java_version() == version
    assert (installation.missing_java() is None) is good


@pytest.mark.parametrize(
    ("version", "major"), [("17", 17), ("21-ea", 21), ("1.8.0_402", 8), ("", 0)]
)
def test_major_versions(version: str, major: int) -> None:
    assert installation.java_major(version) == major


def test_a_missing_java_is_named_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/none")
    assert installation.java_version() is None
    assert "--no-spark" in (installation.missing_java() or "")


def test_this_machine_has_one() -> None:
    require_java()
    assert installation.missing_java() is None
