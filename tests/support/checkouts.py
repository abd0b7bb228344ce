"""Copies of the project, for tests of what a reader does in a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from dev import ROOT

BIN = Path(sys.executable).parent
NO_SOURCES = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "artifacts", "build", "tidegate-data"
)
"""What a checkout has beside the project itself."""


def copy_checkout(folder: Path) -> None:
    """Copy the project into a folder, as a reader has it who has just cloned it."""
    shutil.copytree(ROOT, folder, symlinks=True, ignore=NO_SOURCES, dirs_exist_ok=True)


def lend_environment(folder: Path) -> None:
    """Let `dev.py` of a copy find the tests' own environment as its `.venv`, fully set up."""
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("python", "tidegate"):
        (commands / name).symlink_to(BIN / name)
    mark_set_up(folder, "all")


def mark_set_up(folder: Path, level: str) -> None:
    """Note in the `.venv` of a copy that it holds a level of the set-up."""
    told = [sys.executable, "-c", "import dev; print(dev.wanted_stamp(), end='')"]
    stamp = subprocess.run(told, cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / ".venv" / "tidegate-setup").write_text(f"{level} {stamp}")
