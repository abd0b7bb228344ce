"""`dev.py versions` runs the tests on each minor version of Python that a machine has."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from dev import ROOT

versions = SimpleNamespace(**runpy.run_path(str(ROOT / "requirements" / "versions.py")))


def test_the_newest_of_each_minor_version_is_chosen() -> None:
    found = [
        versions.Interpreter(version, Path(f"/{number}"))
        for number, version in enumerate([(3, 12, 1), (3, 10, 9), (3, 12, 10), (3, 11, 2)])
    ]
    chosen = versions.newest_of_each_minor(found)
    assert [each.version for each in chosen] == [(3, 11, 2), (3, 12, 10)]


def test_interpreters_are_found_on_the_path_and_in_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path, in_pyenv = tmp_path / "bin", tmp_path / "pyenv" / "versions" / "3.12.1" / "bin"
    for folder, names in [
        (on_path, ["python3.13", "python3"]),
        (in_pyenv, ["python3.12-config", "python3.12"]),
    ]:
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    (on_path / "pyenv").write_text(f"#!/bin/sh\necho {tmp_path / 'pyenv'}\n")
    (on_path / "pyenv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{on_path}:{tmp_path / 'gone'}")
    assert versions.candidates() == [on_path / "python3.13", in_pyenv / "python3.12"]


def test_classifiers_begin_with_the_oldest_version() -> None:
    named = versions.classified()
    assert named == [(3, minor) for minor in range(11, 11 + len(named))]
    assert named[0] == versions.OLDEST
