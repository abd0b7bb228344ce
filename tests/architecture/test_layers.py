"""The walls between the packages stand, and each of them catches what would break through it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.architecture.rules import PACKAGES
from tests.support.planted.copies import copy_product

# Where an import is planted, and the module that must not be seen from there.
VIOLATIONS = [
    *(
        ("tidegate.conflation", name)
        for name in ("time", "asyncio", "random", "os", "logging", "threading")
    ),
    *(("tidegate.keys", name) for name in ("time", "socket", "redis", "pydantic", "tidegate.app")),
    *(
        ("tidegate.conflation", name)
        for name in ("tidegate.app", "tidegate.pipeline", "tidegate.clients", "fastapi", "pyspark")
    ),
    *(
        ("tidegate.keys", name)
        for name in ("tidegate.conflation", "tidegate.clients", "pyspark_tidegate")
    ),
    *(
        ("tidegate.app", name)
        for name in (
            "pyspark",
            "redis",
            "tidegate.clients",
            "tidegate.pipeline",
            "pyspark_tidegate",
        )
    ),
    *(("tidegate.app.cli", name) for name in ("redis", "pandas")),
    *(
        ("tidegate.pipeline", name)
        for name in ("tidegate.app", "tidegate.conflation", "fastapi", "redis", "prometheus_client")
    ),
    *(
        ("tidegate.clients", name)
        for name in (
            "tidegate.app",
            "tidegate.conflation",
            "tidegate.keys",
            "tidegate.pipeline",
            "pyspark",
            "uvicorn",
        )
    ),
    *(
        ("pyspark_tidegate", name)
        for name in (
            "tidegate.app",
            "tidegate.conflation",
            "tidegate.keys",
            "tidegate.clients",
            "fastapi",
        )
    ),
]
CYCLES = [f"tidegate.{name}" for name in ("keys", "conflation", "app", "pipeline", "clients")]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the contracts of a tree over the packages of that tree."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def plant(folder: Path, package: str, name: str, text: str) -> None:
    """Adds a module to a package of the copied tree."""
    home = folder.joinpath(*package.split("."))
    home.mkdir(exist_ok=True)
    (home / "__init__.py").touch()
    (home / f"{name}.py").write_text(text)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the contracts say of a copy of the tree with every violation planted in it."""
    folder = tmp_path_factory.mktemp("broken")
    shutil.copy(ROOT / "pyproject.toml", folder)
    copy_product(folder)
    for number, (package, name) in enumerate(VIOLATIONS):
        plant(folder, package, f"planted_{number}", f"import {name}\n")
    for package in CYCLES:
        plant(folder, package, "planted_hen", f"import {package}.planted_egg\n")
        plant(folder, package, "planted_egg", f"import {package}.planted_hen\n")
    ended = lint_imports(folder)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout


def test_the_walls_stand() -> None:
    ended = lint_imports(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(("package", "name"), VIOLATIONS)
def test_an_import_through_a_wall_is_caught(broken: str, package: str, name: str) -> None:
    number = VIOLATIONS.index((package, name))
    assert re.search(rf"{package}\.planted_{number}\b.*-> {name}\b", broken), broken


@pytest.mark.parametrize("package", CYCLES)
def test_a_cycle_of_siblings_is_caught(broken: str, package: str) -> None:
    shown = broken.partition(f"No cycles are allowed in {package}.")[2].partition("No cycles")[0]
    assert re.search(r"\.planted_(hen|egg) -> \.planted_(hen|egg)", shown), broken


def test_every_package_is_behind_the_walls() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"root_packages = \[(.*)\]", text)
    assert listed is not None
    linked = {path.name for path in (ROOT / "tidegate").iterdir() if path.is_symlink()}
    assert re.findall(r'"(\w+)"', listed[1]) == ["tidegate", "pyspark_tidegate"]
    assert linked | {"pyspark_tidegate"} == set(PACKAGES)
