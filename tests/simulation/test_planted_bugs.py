"""The simulation finds bugs: each is one place of a copy of the shipped code, made wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dev import ROOT
from tests.simulation.planted import FOUND_BY, PLANTED
from tests.simulation.search import FOUND
from tests.support.deadlines import computed
from tests.support.planted.copies import copy_product

SEEDS_MAX = 300

pytestmark = pytest.mark.nightly


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the shipped packages."""
    copy_product(tmp_path)
    return tmp_path


def search(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The simulation in a process of its own, over the copy."""
    # The copy runs once, so nobody reads bytecode of it again.
    once = {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **once}
    return computed(["-P", "-m", "tests.simulation", *arguments], cwd=copy, environment=environment)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(copy: Path, name: str) -> None:
    file, link, wrong = PLANTED[name]
    text = (copy / file).read_text()
    assert text.count(f"\n{link}\n") == 1, f"{file} has changed: plant this bug anew"
    (copy / file).write_text(text.replace(f"\n{link}\n", f"\n{wrong}\n"))
    found_by = ["--first", str(FOUND_BY[name])] if name in FOUND_BY else []
    run = search(copy, "0", str(SEEDS_MAX), *found_by)
    assert run.returncode == FOUND, run.stderr or run.stdout


def test_nothing_is_found_where_nothing_was_planted(copy: Path) -> None:
    run = search(copy, "0", "10")
    assert run.returncode == 0, run.stdout + run.stderr
