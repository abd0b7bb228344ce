"""The simulation finds bugs: each is one place of a copy of the shipped code, made wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.simulation.planted import PLANTED
from tests.simulation.search import FOUND

SEEDS_MAX = 300

pytestmark = pytest.mark.search


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the shipped packages."""
    for package in ("app", "conflation", "keys"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def search(copy: Path, seeds: int) -> subprocess.CompletedProcess[str]:
    """The simulation in a process of its own, over the copy."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "tests.simulation", "0", str(seeds)],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(copy: Path, name: str) -> None:
    file, line, wrong = PLANTED[name]
    text = (copy / file).read_text()
    assert text.count(f"\n{line}\n") == 1, f"{file} has changed: plant this bug anew"
    (copy / file).write_text(text.replace(f"\n{line}\n", f"\n{wrong}\n"))
    run = search(copy, SEEDS_MAX)
    assert run.returncode == FOUND, run.stderr or run.stdout


def test_nothing_is_found_where_nothing_was_planted(copy: Path) -> None:
    run = search(copy, 10)
    assert run.returncode == 0, run.stdout + run.stderr
