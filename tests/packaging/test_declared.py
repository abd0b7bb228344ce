"""What is imported is declared and what is declared is imported; the linter finds either fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.run import PRODUCT

PROJECT = (ROOT / "pyproject.toml").read_text()


def faults(project: Path) -> str:
    """What deptry says of the product and a project file."""
    command = [str(Path(sys.executable).with_name("deptry")), "--no-ansi"]
    ended = subprocess.run(
        [*command, "--config", str(project), *PRODUCT], cwd=ROOT, capture_output=True, text=True
    )
    return ended.stderr if ended.returncode else ""


def test_the_project_file_declares_what_is_imported() -> None:
    assert faults(ROOT / "pyproject.toml") == ""


@pytest.mark.parametrize(
    ("declared", "changed", "fault"),
    [
        ('    "anyio>=', '    # "', "DEP003 'anyio'"),
        ("server = [", 'server = [\n    "requests",', "DEP002 'requests'"),
    ],
)
def test_a_difference_is_found(tmp_path: Path, declared: str, changed: str, fault: str) -> None:
    assert PROJECT.count(declared) == 1
    wrong = tmp_path / "pyproject.toml"
    wrong.write_text(PROJECT.replace(declared, changed))
    assert fault in faults(wrong)
