"""A copy of the product in a folder, for tests that change its code."""

from __future__ import annotations

import shutil
from pathlib import Path

from dev import ROOT

FOLDERS = ("app", "clients", "conflation", "keys", "pipeline", "pyspark_tidegate", "tidegate")


def copy_product(folder: Path) -> None:
    """Copy all packages; the links of `tidegate/` lead to the copies."""
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
