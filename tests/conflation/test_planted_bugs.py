"""The state machines find bugs: each is one line of a copy of the shipped code, made wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dev import ROOT
from tests.support.deadlines import computed
from tests.support.planted.bugs import FOUND_FROM, MACHINES, PLANTED
from tests.support.planted.copies import copy_product
from tests.support.planted.search import FOUND

# What is found ends the search, so that a large bound is free.
EXAMPLES_MAX = 4_000
EXAMPLES_CLEAN = 40

pytestmark = pytest.mark.nightly


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the shipped packages."""
    copy_product(tmp_path)
    return tmp_path


def search(
    copy: Path, machine: str, examples: int, *drawn_from: int
) -> subprocess.CompletedProcess[str]:
    """A state machine in a process of its own, over the copy."""
    # The copy runs once, so nobody reads bytecode of it again.
    once = {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **once}
    numbers = map(str, (examples, *drawn_from))
    arguments = ["-P", "-m", "tests.support.planted.search", str(copy), machine, *numbers]
    return computed(arguments, cwd=copy, environment=environment)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(copy: Path, name: str) -> None:
    machine, file, line, wrong = PLANTED[name]
    text = (copy / file).read_text()
    assert text.count(f"\n{line}\n") == 1, f"{file} has changed: plant this bug anew"
    (copy / file).write_text(text.replace(f"\n{line}\n", f"\n{wrong}\n"))
    drawn_from = [FOUND_FROM[name]] if name in FOUND_FROM else []
    run = search(copy, machine, EXAMPLES_MAX, *drawn_from)
    assert run.returncode == FOUND, run.stderr or "the bug was not found"


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_found_where_nothing_was_planted(copy: Path, machine: str) -> None:
    run = search(copy, machine, EXAMPLES_CLEAN)
    assert run.returncode == 0, run.stdout + run.stderr
