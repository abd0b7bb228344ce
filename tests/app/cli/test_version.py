"""Versions, without starting anything."""

from __future__ import annotations

import platform

import pytest

from tidegate.app.cli import installation
from tidegate.app.cli.main import main


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
